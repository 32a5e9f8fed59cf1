package bedrock

import (
	"context"
	"slices"
	"sync/atomic"
)

const (
	// largeRequest is the size above which a request takes units of work. What a command makes of
	// it takes several times its size.
	largeRequest = 64 << 10
	// workUnit is the size of a unit of work, and workUnits is how many there are. Requests and
	// pages of Query of 8 MiB in all are worked on at a time.
	workUnit, workUnits = 256 << 10, 32
	// partSize is about how large the parts are that an answer is kept and written in.
	partSize = 64 << 10
	// mostWaiting is the largest buffer that a client may have while it waits for a job.
	mostWaiting = 256 << 10
)

// errNoMemory is the status if there is no memory for an answer. A client that waits with a large
// request gets it too.
const errNoMemory statusError = "503 Server out of memory for answers"

// budget counts the bytes of large requests and answers.
type budget struct {
	most    int64
	used    atomic.Int64
	answers atomic.Int64  // of used
	work    chan struct{} // one element for each workUnit that is in use
	gate    chan struct{} // held while units are taken, so that no two requests wait for each other
}

func newBudget(most int64) *budget {
	return &budget{most: most, work: make(chan struct{}, workUnits), gate: make(chan struct{}, 1)}
}

// request reserves memory for a large request, or gives it back if delta is negative. It returns
// false if there is none.
func (m *budget) request(delta int) bool { return add(&m.used, delta, m.most) }

// answer reserves memory for a large answer, or gives it back if delta is negative. It returns
// false if there is none. Answers get half of all, so that clients that read nothing do not keep
// others from sending.
func (m *budget) answer(delta int) bool {
	if !add(&m.answers, delta, m.most/2) {
		return false
	}
	if !add(&m.used, delta, m.most) {
		m.answers.Add(-int64(delta))
		return false
	}
	return true
}

// add adds delta to n. It returns false, and adds nothing, if the sum would exceed most.
func add(n *atomic.Int64, delta int, most int64) bool {
	if sum := n.Add(int64(delta)); delta > 0 && sum > most {
		n.Add(-int64(delta))
		return false
	}
	return true
}

// enter waits for the units of so many bytes. leave gives them back.
func (m *budget) enter(ctx context.Context, bytes int) (leave func(), err error) {
	n := 0
	leave = func() {
		for range n {
			<-m.work
		}
	}
	select {
	case m.gate <- struct{}{}:
		defer func() { <-m.gate }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	for want := min((bytes+workUnit-1)/workUnit, workUnits); n < want; n++ {
		select {
		case m.work <- struct{}{}:
		case <-ctx.Done():
			leave()
			return nil, ctx.Err()
		}
	}
	return leave, nil
}

// body is the body of an answer, until it is written. It is kept in parts, which are not copied.
type body struct {
	memory *budget
	out    *[]byte  // the last part
	full   [][]byte // those before
	size   int      // bytes in full
	taken  int      // bytes that full takes
	held   int      // bytes that memory has counted
}

// length returns how long the body is.
func (b *body) length() int { return b.size + len(*b.out) }

// count asks for memory for the body, beyond freeBuffer. Returns false if there is none.
func (b *body) count() bool {
	more := max(b.taken+cap(*b.out)-freeBuffer, 0) - b.held
	if more <= 0 {
		return true
	}
	if !b.memory.answer(more) {
		return false
	}
	b.held += more
	return true
}

// turn begins another part if the last one is large enough.
func (b *body) turn() {
	if len(*b.out) < partSize {
		return
	}
	b.full = append(b.full, *b.out)
	b.size += len(*b.out)
	b.taken += cap(*b.out)
	next := make([]byte, 0, partSize+partSize/4)
	b.out = &next
}

// grow makes room for so many bytes more, so that the last part is not copied again and again.
func (b *body) grow(n int) { *b.out = slices.Grow(*b.out, n) }

// cut removes what was appended to the last part since it had n bytes.
func (b *body) cut(n int) { *b.out = append([]byte(nil), (*b.out)[:n]...) }

// written gives back the memory of a part that was written.
func (b *body) written(i int) {
	less := min(cap(b.full[i]), b.held)
	b.full[i] = nil
	b.held -= less
	b.memory.answer(-less)
}

// free gives the body up, and its memory back.
func (b *body) free() {
	b.memory.answer(-b.held)
	free(b.out)
	*b = body{}
}
