// Package helm has only a test, which renders the chart in this folder. The folder is a separate module,
// because Helm's library requires many other modules.
package helm
