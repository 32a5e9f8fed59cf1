package producer

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"io"
	"sync"

	"github.com/google/uuid"

	"github.com/swarmiji/swarmiji/task"
)

// ids makes the ids of tasks, UUIDs of version 7 (RFC 9562). Safe for concurrent use.
//
// It reads random bytes from the system for many ids at once: to read them for each id takes as
// long as to encode a small task.
type ids struct {
	mu     sync.Mutex
	random *bufio.Reader
}

// newIDs returns a source of ids. It reads nothing yet.
func newIDs() *ids { return &ids{random: bufio.NewReaderSize(rand.Reader, 1024)} }

// Read implements io.Reader for the library that makes the ids. It fills p with random bytes, or
// returns the error of the system's source. It takes i.mu.
func (i *ids) Read(p []byte) (int, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return io.ReadFull(i.random, p)
}

// next returns a new id. Returns the error of the system's source of random bytes.
func (i *ids) next() (task.ID, error) {
	id, err := uuid.NewV7FromReader(i)
	if err != nil {
		return "", fmt.Errorf("swarmiji: make an id: %w", err)
	}
	return task.ID(id.String()), nil
}
