// Rowrelay-plugin-pubsub is a plug-in of rowrelay that publishes each message to a topic of Google Cloud Pub/Sub.
// README.md describes its settings and what it guarantees.
package main

import "github.com/rowrelay/rowrelay/plugins"

func main() { plugins.ServeKind(kind()) }
