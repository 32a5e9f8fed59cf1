package pages

import (
	"fmt"

	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/task"
)

// Sizes of a graph, in its units.
const (
	boxWidth, boxHeight = 190, 48
	gapX, gapY          = 46, 14
	maxLabel            = 22 // characters
	maxMembers          = 12 // members of a group that are drawn
)

// graph is a picture of a workflow: its steps from left to right, and the members of a group below
// it.
type graph struct {
	Width, Height int
	Boxes         []box
	Lines         []line
}

type box struct {
	X, Y        int
	Mark        mark
	Label, Note string
	Title       string
	Task        task.ID // "": a group
}

// TextX, LabelY and NoteY place the texts of the box.
func (b box) TextX() int  { return b.X + 14 }
func (b box) LabelY() int { return b.Y + 20 }
func (b box) NoteY() int  { return b.Y + 37 }

type line struct{ X1, Y1, X2, Y2 int }

// draw returns the picture of steps.
func draw(steps []inspect.WorkflowStep) graph {
	g := graph{Height: boxHeight + 2}
	x, y, members := 1, 1, 0
	for i := range steps {
		s := &steps[i]
		if s.Depth == 0 || len(g.Boxes) == 0 {
			if len(g.Boxes) > 0 {
				g.Lines = append(g.Lines, line{x + boxWidth, 1 + boxHeight/2, x + boxWidth + gapX, 1 + boxHeight/2})
				x += boxWidth + gapX
			}
			y, members = 1, 0
		} else {
			if members++; members > maxMembers+1 {
				continue
			}
			bottom := y + boxHeight
			y = bottom + gapY
			g.Lines = append(g.Lines, line{x + boxWidth/2, bottom, x + boxWidth/2, y})
		}
		b := boxOf(s)
		if members > maxMembers {
			b = box{Label: "further members", Note: "see the table", Mark: badge("")}
		}
		b.X, b.Y = x, y
		g.Boxes = append(g.Boxes, b)
		g.Height = max(g.Height, y+boxHeight+1)
	}
	g.Width = x + boxWidth + 1
	return g
}

// boxOf returns the box of a step, without its place.
func boxOf(s *inspect.WorkflowStep) box {
	if m := s.Members; m != nil {
		b := box{Label: "group", Note: fmt.Sprintf("%d of %d done, %d failed", m.Done, m.Total, m.Failed), Mark: badge("running"), Title: "group " + string(s.ID)}
		switch {
		case m.Total == 0:
			b.Note, b.Mark = fmt.Sprintf("%d done, %d failed", m.Done, m.Failed), badge("")
		case m.Failed > 0:
			b.Mark = badge("failed")
		case m.Done >= m.Total:
			b.Mark = badge("succeeded")
		}
		return b
	}
	return box{Label: short(maxLabel, s.Name), Note: string(s.State), Mark: badge(s.State), Title: s.Name + " " + string(s.ID), Task: s.ID}
}
