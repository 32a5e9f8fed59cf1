package serializer

import (
	"errors"
	"fmt"
	"strings"

	"github.com/swarmiji/swarmiji/internal/utf"
)

// Set holds the serializers of a process. It is the allow list of content types: messages with
// other content types are refused. It is immutable. Make one with [NewSet].
type Set struct{ all []Serializer }

// NewSet returns a set of ss; the first is the default. Returns an error if ss is empty, or has a
// nil serializer, one without a content type, or two with the same content type.
func NewSet(ss ...Serializer) (*Set, error) {
	if len(ss) == 0 {
		return nil, errors.New("serializer: a set needs at least one serializer")
	}
	set := &Set{all: make([]Serializer, 0, len(ss))}
	for i, s := range ss {
		if s == nil {
			return nil, fmt.Errorf("serializer: number %d of the set is nil", i+1)
		}
		if MediaType(s.ContentType()) == "" {
			return nil, fmt.Errorf("serializer: number %d of the set (%T) has no content type", i+1, s)
		}
		for _, other := range set.all {
			if MediaType(other.ContentType()) == MediaType(s.ContentType()) {
				return nil, fmt.Errorf("serializer: content type %q is in the set twice", s.ContentType())
			}
		}
		set.all = append(set.all, s)
	}
	return set, nil
}

// Default returns the first serializer.
func (s *Set) Default() Serializer { return s.all[0] }

// For returns the serializer of a content type. "" is the default serializer's. Parameters such as
// "; charset=utf-8" and the case of letters are ignored. The error wraps [ErrUnknownType].
func (s *Set) For(contentType string) (Serializer, error) {
	if contentType == "" {
		return s.all[0], nil
	}
	for _, one := range s.all {
		if one.ContentType() == contentType {
			return one, nil
		}
	}
	bare := MediaType(contentType)
	for _, one := range s.all {
		if MediaType(one.ContentType()) == bare {
			return one, nil
		}
	}
	return nil, fmt.Errorf("%w: %q", ErrUnknownType, utf.Cut(contentType, 64))
}

// MediaType returns a content type in lower case without its parameters.
func MediaType(contentType string) string {
	bare, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(bare))
}
