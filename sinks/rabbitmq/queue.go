package rabbitmq

// queue is a queue without bounds.
type queue[T any] struct {
	items []T
	head  int
}

func (q *queue[T]) len() int { return len(q.items) - q.head }

func (q *queue[T]) push(item T) { q.items = append(q.items, item) }

func (q *queue[T]) first() T { return q.items[q.head] }

func (q *queue[T]) pop() T {
	item := q.items[q.head]
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return item
}

// putBack puts items before the first.
func (q *queue[T]) putBack(items []T) {
	q.items, q.head = append(append([]T(nil), items...), q.items[q.head:]...), 0
}
