// Package helm has no code. Its test renders the chart in this folder. It is a separate module, because Helm's
// library has many requirements.
package helm
