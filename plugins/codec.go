package plugins

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec of generated code
	"google.golang.org/grpc/mem"

	"github.com/rowrelay/rowrelay/plugins/pluginv1"
)

// frame is an encoded SendRequest or SendResponse. The objects that generated
// code makes of one are most of what the boundary would cost.
type frame struct {
	bytes []byte
	pool  mem.BufferPool // takes the bytes back when they are sent; nil: nobody does
}

// codec is that of generated code, save for frames.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

// Marshal passes a frame on as it is.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*frame); ok {
		return mem.BufferSlice{mem.NewBuffer(&f.bytes, f.pool)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal copies what a frame has, which is nobody else's then.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if f, ok := v.(*frame); ok {
		f.bytes = data.Materialize()
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// caller is the relay's end of the connection.
type caller struct {
	pluginv1.SinkClient
	connection *grpc.ClientConn
	bodies     *buffers // of requests
}

// send takes the body of a request, and returns that of the answer.
func (c caller) send(ctx context.Context, body []byte) ([]byte, error) {
	var answer frame
	err := c.connection.Invoke(ctx, pluginv1.Sink_Send_FullMethodName, &frame{body, c.bodies}, &answer)
	return answer.bytes, err
}

// register serves the protocol's calls, Send by frames.
func register(registrar grpc.ServiceRegistrar, s *server) {
	description := pluginv1.Sink_ServiceDesc
	description.Methods = slices.Clone(description.Methods)
	for i, method := range description.Methods {
		if method.MethodName == "Send" {
			description.Methods[i].Handler = serveFrame
		}
	}
	registrar.RegisterService(&description, s)
}

func serveFrame(s any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	var f frame
	if err := decode(&f); err != nil {
		return nil, err
	}
	request, err := decodeRequest(f.bytes)
	if err != nil {
		return nil, err
	}
	return &frame{bytes: appendOutcomes(nil, s.(*server).send(ctx, request))}, nil
}
