// Package floor decides at which priority level a subscription takes its next message, so that less
// urgent levels get a share. It stores nothing on the broker.
//
// Most picks take the most urgent message. After each 1/share picks one begins lower: at the levels
// below the one that the last other pick took from, in rotation. If these levels have no message,
// the pick takes the most urgent one.
package floor

// Floor counts picks. The zero value is strict: each pick begins at level 0, the most urgent. Not
// safe for concurrent use.
type Floor struct {
	share  float64
	credit float64 // share of the picks so far, minus the picks that began lower
	turn   int     // number of picks that began lower
	top    int     // level of the last other pick
}

// New returns a Floor with a share of 0 to 0.5.
func New(share float64) Floor { return Floor{share: share} }

// enough is the credit of a pick that begins lower: 1, without the errors of the sums.
const enough = 1 - 1e-9

// lower reports whether the next pick begins lower.
func (f *Floor) lower() bool { return f.credit+f.share >= enough }

// At returns the level to try as number i, from 0 on, at the next pick in a queue of the given
// number of levels. Call Took when a level had a message.
func (f *Floor) At(i, levels int) int {
	below := levels - 1 - f.top
	switch {
	case !f.lower() || below <= 0:
		return i
	case i < below:
		return f.top + 1 + (f.turn+i)%below
	default:
		return i - below
	}
}

// Took counts a pick, which took a message from level.
func (f *Floor) Took(level int) {
	if f.share == 0 {
		return
	}
	if !f.lower() {
		f.credit += f.share
		f.top = level
		return
	}
	f.credit = max(0, f.credit+f.share-1)
	f.turn++
}

// Batch describes the next n picks as one claim: lower is the number of them that begin lower, and
// first is the level at which the first of these begins. The later ones continue in rotation over
// the levels from 1 on. Call Claimed with the outcome.
func (f *Floor) Batch(n, levels int) (lower, first int) {
	if f.share == 0 || levels < 2 {
		return 0, 0
	}
	return int(f.credit + float64(n)*f.share + 1 - enough), 1 + f.turn%(levels-1)
}

// Claimed counts n picks of a claim, those that found a message.
func (f *Floor) Claimed(n int) {
	f.credit += float64(n) * f.share
	for ; f.credit >= enough; f.credit-- {
		f.turn++
	}
	f.credit = max(0, f.credit)
}
