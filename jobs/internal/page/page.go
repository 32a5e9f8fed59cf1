// Package page computes how many jobs to read at a time. A job may have a megabyte of data; most
// have little.
package page

import "github.com/swarmiji/swarmiji/jobs/jobstore"

// Size computes the limits of pages from the sizes of the jobs read before. Not safe for concurrent
// use.
type Size struct {
	// Bytes is the wanted size of a page. A page contains at least one job.
	Bytes int
	// First is the limit of the first page. The limit of a page is at most twice the limit of the page
	// before.
	First int
	// Most is the largest limit.
	Most int

	next int
}

// Limit returns the limit of the next page: the one that Read has computed, or First before the
// first call of Read. It is never above Most.
func (s *Size) Limit() int {
	if s.next == 0 {
		return min(s.First, s.Most)
	}
	return s.next
}

// Read records that a page contained a number of jobs with a number of bytes in total. It computes
// the limit of the next page: as many jobs of this average size as fit into Bytes. The limit is at
// least 1, and at most Most and twice the present limit. A page without jobs changes nothing.
func (s *Size) Read(jobs, bytes int) {
	if jobs > 0 {
		s.next = max(min(s.Bytes*jobs/max(bytes, 1), 2*s.Limit(), s.Most), 1)
	}
}

// fixed is the approximate number of bytes of a job without its texts.
const fixed = 512

// Rows returns the approximate number of bytes of jobs: their Data, Answer and Message, and 512 for
// the rest of each.
func Rows(js []jobstore.Row) int {
	n := 0
	for i := range js {
		n += row(&js[i])
	}
	return n
}

// row returns the approximate number of bytes of a job.
func row(j *jobstore.Row) int { return fixed + len(j.Data) + len(j.Answer) + len(j.Message) }

// Handouts returns the approximate number of bytes of claimed jobs, the data of their parents and
// children included.
func Handouts(hs []jobstore.Handout) int {
	n := 0
	for i := range hs {
		h := &hs[i]
		n += row(&h.Row) + len(h.ParentData)
		for _, children := range [][]jobstore.Child{h.FinishedChildren, h.CancelledChildren} {
			for k := range children {
				n += fixed + len(children[k].Data)
			}
		}
	}
	return n
}

// Bare returns a claimed job without Data, Answer, and the data of its parent and children, which
// only a handler needs. The result can still be ended, renewed and given back.
func Bare(h jobstore.Handout) jobstore.Handout {
	h.Data, h.Answer, h.ParentData, h.FinishedChildren, h.CancelledChildren = nil, nil, nil, nil, nil
	return h
}
