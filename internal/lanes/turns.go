package lanes

// shares are the numbers of turns that the lanes get while all have messages.
var shares = [Count]int{8, 4, 2, 1}

// Turns gives the lanes of a priority level their turns: 8, 4, 2 and 1 of 15. A lane without
// messages leaves its turns to the others, and is not behind them when messages arrive. The zero
// value is ready. Not safe for concurrent use.
type Turns struct{ left [Count]int }

// Next returns the lane that has the next turn among those for which ready returns true, and uses
// the turn. It returns false if no lane is ready. It calls ready with 0 to 3, in this order, and
// perhaps twice.
func (t *Turns) Next(ready func(lane int) bool) (lane int, ok bool) {
	for range 2 {
		for lane := range t.left {
			if t.left[lane] > 0 && ready(lane) {
				t.left[lane]--
				return lane, true
			}
		}
		t.left = shares // every lane that is ready has used its turns
	}
	return 0, false
}
