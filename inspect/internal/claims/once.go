package claims

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/internal/wake"
)

const (
	makeTime = time.Minute           // limits a call with a key
	holdTime = 2 * makeTime          // until then a key belongs to a call whose process has died
	keptKey  = 24 * time.Hour        // how long the copy of a key is remembered
	keyPause = 50 * time.Millisecond // between two looks at a call of another caller
	noteTime = time.Second           // limits the call that notes the end
)

// States of a call with a key: the first byte of the holder of its claim.
const (
	copying = "?" // followed by a random text
	copied  = "=" // followed by the id of the copy
)

// ErrBusy: ctx ended while another call with the key ran.
var ErrBusy = errors.New("another call with this key has not ended")

// Once calls do, which makes a copy and returns its id, for the first call with the name of a
// claim. The other calls return the same id, with repeated true.
//
// A call during another one waits for its end, and makes the copy if the other call has failed. do
// does not end with ctx: the client of the first of two clicks is gone. Returns the error of do or
// of the claim, or [ErrBusy]. failed gets the error of noting the end of do.
func Once(ctx context.Context, cs Claims, name string, do func(ctx context.Context) (id string, err error), failed func(error)) (id string, repeated bool, err error) {
	holder := copying + rand.Text()
	making, cancel := context.WithTimeout(context.WithoutCancel(ctx), makeTime)
	defer cancel()
	for winner := ""; winner != holder; {
		if winner, err = cs.Claim(making, name, holder, holdTime); err != nil {
			return "", false, err
		}
		if made, ok := strings.CutPrefix(winner, copied); ok {
			return made, true, nil
		}
		if winner != holder && !wake.Sleep(ctx, keyPause) {
			return "", false, ErrBusy
		}
	}
	id, err = do(making)
	noting, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTime)
	defer cancel()
	var noted error
	if err == nil {
		noted = cs.Pass(noting, name, holder, copied+id, keptKey)
	} else {
		noted = cs.Release(noting, name, holder)
	}
	if noted != nil {
		failed(noted)
	}
	return id, false, err
}
