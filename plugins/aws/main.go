// Rowrelay-plugin-aws is a plug-in of rowrelay that sends each message to a queue of Amazon SQS or to a topic of
// Amazon SNS. README.md describes its settings and what it guarantees.
package main

import "github.com/rowrelay/rowrelay/plugins"

func main() { plugins.ServeKind(kind()) }
