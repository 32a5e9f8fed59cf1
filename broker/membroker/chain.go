package membroker

// links hold the neighbors of a struct in a chain.
type links[T any] struct{ prev, next *T }

// linked is a pointer to a struct with links, which its method returns.
type linked[T any] interface {
	*T
	links() *links[T]
}

// chain is a doubly linked list through its members, so that adding to it allocates no memory. The
// zero value is empty. A member is in at most one chain at a time.
type chain[T any, P linked[T]] struct{ head, tail *T }

// push adds m, which must be in no chain, at the end. Call it with the mutex held that guards the
// chain.
func (c *chain[T, P]) push(m *T) {
	l := P(m).links()
	l.prev, l.next = c.tail, nil
	if c.tail == nil {
		c.head = m
	} else {
		P(c.tail).links().next = m
	}
	c.tail = m
}

// remove removes m, which must be in the chain. Call it with the mutex held that guards the chain.
func (c *chain[T, P]) remove(m *T) {
	l := P(m).links()
	if l.prev == nil {
		c.head = l.next
	} else {
		P(l.prev).links().next = l.next
	}
	if l.next == nil {
		c.tail = l.prev
	} else {
		P(l.next).links().prev = l.prev
	}
	l.prev, l.next = nil, nil
}
