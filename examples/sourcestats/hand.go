package main

import (
	"context"
)

// byHand counts in a plain loop.
func byHand(ctx context.Context, o *options, files []File) (Totals, error) {
	var t Totals
	bar := newBar(o.stderr, len(files))
	defer bar.end()
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return Totals{}, err
		}
		s, err := count(f)
		if err != nil {
			return Totals{}, err
		}
		t.add(s.in(below(o.root, f.Path)))
		bar.step()
	}
	return t, nil
}
