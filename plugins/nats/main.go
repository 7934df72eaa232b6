// Rowrelay-plugin-nats is a plug-in of rowrelay that stores each message in a NATS JetStream
// stream. README.md describes its settings and what it guarantees.
package main

import "github.com/rowrelay/rowrelay/plugins"

func main() { plugins.ServeKind(kind()) }
