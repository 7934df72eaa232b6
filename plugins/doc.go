// Package plugins runs a sink in another process: a plug-in.
//
// An author writes a main function that calls [Serve] with a sink, or
// [ServeKind] with a kind that has settings; README.md tells how, and how to
// write one in another language. The relay uses it as the sink of [New], which
// configurations and URLs know by [Kind].
//
// The plug-in is started by the relay, and ends with it. What it does wrong is
// this sink's trouble alone: a plug-in that dies is started again, one that
// doesn't answer is killed.
package plugins
