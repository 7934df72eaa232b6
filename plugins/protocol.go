package plugins

import (
	"context"
	"errors"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/rowrelay/rowrelay/plugins/pluginv1"
)

// cookie tells a plug-in that a relay has started it, and a relay that what it
// starts means to be a plug-in of it. It is no secret.
var cookie = goplugin.HandshakeConfig{
	MagicCookieKey:   "ROWRELAY_PLUGIN",
	MagicCookieValue: "rowrelay-sink",
}

// protocolVersion is the newest version of the protocol that this package
// speaks, and the only one so far.
const protocolVersion = 1

// serviceName is what go-plugin calls the sink of a plug-in.
const serviceName = "sink"

// Encoded sizes in bytes. What a plug-in of this package takes has to be above
// the largest payload that a writer allows (256 MiB), with its headers.
const (
	defaultRequestBytes = 4 << 20 // what a gRPC server takes that was told nothing
	serverRequestBytes  = 288 << 20
	responseBytes       = 32 << 20 // 10,000 outcomes with all the text that is kept, and more
	windowBytes         = 4 << 20  // of HTTP/2: a usual batch is sent without waiting
	bufferBytes         = 256 << 10
)

// versions are what go-plugin chooses from when it has learnt which versions the
// other side knows.
func versions(s *server) map[int]goplugin.PluginSet {
	return map[int]goplugin.PluginSet{protocolVersion: {serviceName: &service{server: s}}}
}

// service joins the protocol to go-plugin. The host's has no server.
type service struct {
	goplugin.NetRPCUnsupportedPlugin
	server *server
}

// GRPCServer is called in the plug-in.
func (s *service) GRPCServer(_ *goplugin.GRPCBroker, registrar *grpc.Server) error {
	if s.server == nil {
		return errors.New("serve a sink: there is none")
	}
	pluginv1.RegisterSinkServer(registrar, s.server)
	return nil
}

// GRPCClient is called in the relay.
func (*service) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, connection *grpc.ClientConn) (any, error) {
	return pluginv1.NewSinkClient(connection), nil
}
