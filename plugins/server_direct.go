package plugins

import (
	"context"
	"log/slog"
	"net"
)

// converse answers on the connections that the relay passes, until the relay has
// gone.
func (s *server) converse(control *net.UnixConn) {
	for {
		connection, err := accept(control)
		if err != nil {
			return
		}
		go s.answer(connection)
	}
}

// answer answers the requests of a connection, one after the other.
func (s *server) answer(connection *net.UnixConn) {
	defer connection.Close()
	for {
		body, err := readPiece(connection, serverRequestBytes)
		if err != nil {
			return
		}
		request, err := decodeRequest(body)
		if err != nil {
			slog.Error("the relay's request makes no sense", "error", err)
			return
		}
		if writePiece(connection, appendOutcomes(nil, s.send(context.Background(), request))) != nil {
			return
		}
	}
}
