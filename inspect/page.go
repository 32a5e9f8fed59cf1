package inspect

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// Limits of queries and changes.
const (
	DefaultLimit = 100    // records of a page if Limit is 0
	MaxLimit     = 1000   // records of a page at most
	MaxBulk      = 1000   // records that one call changes at most
	MaxCount     = 10_000 // a count stops here, with Count.More
	MaxMinutes   = 1440   // a day, of [Tasks.ListRates]
)

// Count is a number of records.
type Count struct {
	N int `json:"n"`
	// More reports that the count stopped, so that there are more than N.
	More bool `json:"more,omitempty"`
}

// String returns the number with a "+" if there are more.
func (c Count) String() string {
	if c.More {
		return fmt.Sprintf("%d+", c.N)
	}
	return fmt.Sprint(c.N)
}

// Duration is a time.Duration that JSON carries as a number of milliseconds, with fractions.
type Duration time.Duration

// MarshalJSON returns the milliseconds.
func (d Duration) MarshalJSON() ([]byte, error) {
	return json.Marshal(float64(d) / float64(time.Millisecond))
}

// UnmarshalJSON reads milliseconds.
func (d *Duration) UnmarshalJSON(data []byte) error {
	var ms float64
	if err := json.Unmarshal(data, &ms); err != nil {
		return err
	}
	*d = Duration(math.Round(ms * float64(time.Millisecond)))
	return nil
}

// String returns the duration as time.Duration prints it.
func (d Duration) String() string { return time.Duration(d).String() }

// pageLimit returns the size of a page, or ErrInvalid.
func pageLimit(n int) (int, error) { return limitOf(n, DefaultLimit, MaxLimit) }

// bulkLimit returns how many records a change may change, or ErrInvalid.
func bulkLimit(n int) (int, error) { return limitOf(n, MaxBulk, MaxBulk) }

// limitOf returns n, or otherwise if n is 0, or ErrInvalid.
func limitOf(n, otherwise, most int) (int, error) {
	if n < 0 || n > most {
		return 0, errorf(CodeInvalid, "the limit is %d, want 1 to %d", n, most)
	}
	return cmp.Or(n, otherwise), nil
}

// position reads a cursor that is a number of records to skip.
func position(cursor string) (int, error) {
	if cursor == "" {
		return 0, nil
	}
	var n int
	if _, err := fmt.Sscanf(cursor, "%d", &n); err != nil || n < 0 || fmt.Sprint(n) != cursor {
		return 0, badCursor(cursor)
	}
	return n, nil
}

// badCursor returns the error for a cursor of another query.
func badCursor(cursor string) error {
	return errorf(CodeInvalid, "the cursor %.20q is not one that this list has returned", cursor)
}
