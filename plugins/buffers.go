package plugins

import (
	"math/bits"
	"sync"

	"google.golang.org/grpc/mem"
)

// buffers lends memory again without clearing it, as gRPC's own pool does. They
// have sizes that are powers of two, up to that of a usual batch and some more.
type buffers struct{ bySize [maxBufferBits + 1]sync.Pool }

const maxBufferBits = 22

var _ mem.BufferPool = (*buffers)(nil)

// Get returns a buffer of this length. What it contains is of no meaning.
func (b *buffers) Get(length int) *[]byte {
	size := bits.Len(uint(max(length, 1) - 1))
	if size > maxBufferBits {
		buffer := make([]byte, length)
		return &buffer
	}
	buffer, ok := b.bySize[size].Get().(*[]byte)
	if !ok {
		made := make([]byte, 1<<size)
		buffer = &made
	}
	*buffer = (*buffer)[:length]
	return buffer
}

// Put takes a buffer back, of whatever size.
func (b *buffers) Put(buffer *[]byte) {
	if size := bits.Len(uint(cap(*buffer))) - 1; size >= 0 && size <= maxBufferBits {
		b.bySize[size].Put(buffer)
	}
}
