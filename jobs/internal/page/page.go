// Package page chooses how many jobs are read at a time. A job may have a megabyte of data; most
// have little.
package page

import "github.com/swarmiji/swarmiji/jobs/jobstore"

// Size chooses the sizes of pages by the sizes of the jobs that were read before. Not safe for
// concurrent use.
type Size struct {
	// Bytes is how much a page should have. A page has one job at least.
	Bytes int
	// First is the limit of the first page. A page has at most twice the limit of the one before.
	First int
	// Most is the largest limit.
	Most int

	next int
}

// Limit returns the limit of the next page.
func (s *Size) Limit() int {
	if s.next == 0 {
		return min(s.First, s.Most)
	}
	return s.next
}

// Read notes how many jobs a page had, and their bytes. A page without jobs says nothing.
func (s *Size) Read(jobs, bytes int) {
	if jobs > 0 {
		s.next = max(min(s.Bytes*jobs/max(bytes, 1), 2*s.Limit(), s.Most), 1)
	}
}

// fixed is about what a job takes besides its texts.
const fixed = 512

// Rows returns about how many bytes jobs take.
func Rows(js []jobstore.Row) int {
	n := 0
	for i := range js {
		n += row(&js[i])
	}
	return n
}

func row(j *jobstore.Row) int { return fixed + len(j.Data) + len(j.Answer) + len(j.Message) }

// Handouts returns about how many bytes claimed jobs take.
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

// Bare returns a claimed job without what its worker needs alone: Data, Answer, and the data of
// parent and children. It can still be ended, renewed and given back.
func Bare(h jobstore.Handout) jobstore.Handout {
	h.Data, h.Answer, h.ParentData, h.FinishedChildren, h.CancelledChildren = nil, nil, nil, nil, nil
	return h
}
