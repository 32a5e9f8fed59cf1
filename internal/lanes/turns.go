package lanes

// shares are the numbers of turns that the lanes get while all have messages.
var shares = [Count]int{8, 4, 2, 1}

// laneTurns gives the lanes of a priority level their turns: 8, 4, 2 and 1 of 15. A lane without
// messages leaves its turns to the others, and still has them when messages arrive. The zero value
// is ready.
type laneTurns struct{ left [Count]int }

// next returns the lane that has the next turn among those for which ready returns true, and uses
// the turn. It returns false if no lane is ready. It calls ready with 0 to 3, in this order, and
// perhaps twice.
func (t *laneTurns) next(ready func(lane int) bool) (lane int, ok bool) {
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
