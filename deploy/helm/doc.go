// Package helm has no code. Its test renders the chart beside it. It is a module of its own, as Helm's
// own library, which renders it, brings much along.
package helm
