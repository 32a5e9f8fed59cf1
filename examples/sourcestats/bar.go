package main

import (
	"fmt"
	"io"
	"strings"
)

// bar is a progress line. It is drawn again at each percent.
type bar struct {
	w           io.Writer
	done, total int
	shown       int // percent; -1: not drawn yet
}

func newBar(w io.Writer, total int) *bar {
	b := &bar{w: w, total: max(total, 1), shown: -1}
	b.draw()
	return b
}

func (b *bar) step() {
	b.done++
	b.draw()
}

const barWidth = 40

func (b *bar) draw() {
	percent := 100 * b.done / b.total
	if percent == b.shown {
		return
	}
	b.shown = percent
	full := barWidth * b.done / b.total
	say(b.w, "\r[%s%s] %3d%% %d/%d", strings.Repeat("#", full), strings.Repeat(".", barWidth-full), percent, b.done, b.total)
}

// end ends the line.
func (b *bar) end() { say(b.w, "\n") }

// say writes to a terminal or pipe and ignores errors, because its reader may have ended.
func say(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }
