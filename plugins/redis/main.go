// Rowrelay-plugin-redis is a plug-in of rowrelay that adds each message to a Redis stream.
// README.md describes its settings and what it guarantees.
package main

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/rowrelay/rowrelay/plugins"
)

func main() {
	redis.SetLogger(silent{}) // outcomes already have the errors that the client would log
	plugins.ServeKind(kind())
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
