package settings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
)

// Key names a value of type T, a struct that is stored as a JSON object. Get one from [QueuePause]
// and the like. Fields of the stored object that T does not have stay when the value is changed:
// newer versions may have written them.
type Key[T any] struct{ name string }

// String returns the key in the form that the methods of [Store] take, such as "queue/mail/pause".
func (k Key[T]) String() string { return k.name }

// Get returns the value. found reports whether the key has a value. Returns the errors of the
// store, and [ErrBad] if the value cannot be read.
func (k Key[T]) Get(ctx context.Context, s Store) (v T, found bool, err error) {
	stored, err := s.Get(ctx, k.name)
	if errors.Is(err, ErrNotFound) {
		return v, false, nil
	}
	if err == nil {
		err = k.decode(stored.Data, &v)
	}
	return v, err == nil, err
}

// Update reads the value, calls change with it, and stores the result. Without a value, v is the
// zero T and found is false. If another process changes the value meanwhile, Update begins again,
// until ctx ends. It stores nothing if change returns an error, which it returns. It also returns
// [ErrBad] if the stored value cannot be read, and the errors of the store.
func (k Key[T]) Update(ctx context.Context, s Store, change func(v *T, found bool) error) error {
	for {
		stored, err := s.Get(ctx, k.name)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		var v T
		if err == nil {
			if err := k.decode(stored.Data, &v); err != nil {
				return err
			}
		}
		if err := change(&v, err == nil); err != nil {
			return err
		}
		data, err := merge(stored.Data, &v)
		if err != nil {
			return err
		}
		_, err = s.Put(ctx, k.name, data, stored.Revision)
		if !errors.Is(err, ErrConflict) {
			return err
		}
	}
}

// Set stores v as the value of k in s. Fields of the stored object that T does not have stay. If
// another process changes the value meanwhile, Set begins again, until ctx ends. Returns [ErrBad]
// if the stored value cannot be read, and the errors of the store.
func (k Key[T]) Set(ctx context.Context, s Store, v T) error {
	return k.Update(ctx, s, func(have *T, _ bool) error {
		*have = v
		return nil
	})
}

// Remove deletes the value, also one that cannot be read, and reports whether there was one.
// Returns the errors of the store.
func (k Key[T]) Remove(ctx context.Context, s Store) (found bool, err error) {
	return k.remove(ctx, s, func([]byte) (bool, error) { return true, nil })
}

// RemoveIf deletes the value if which returns true for it, and reports whether it did. It returns
// false if there is no value. Returns [ErrBad] if the value cannot be read, and the errors of the
// store.
func (k Key[T]) RemoveIf(ctx context.Context, s Store, which func(v *T) bool) (removed bool, err error) {
	return k.remove(ctx, s, func(data []byte) (bool, error) {
		var v T
		if err := k.decode(data, &v); err != nil {
			return false, err
		}
		return which(&v), nil
	})
}

// remove deletes the value if which returns true for its data, and reports whether it did. Without
// a value it returns false and nil. If another process changes the value meanwhile, it begins
// again, until ctx ends. Returns the errors of which and of the store.
func (k Key[T]) remove(ctx context.Context, s Store, which func(data []byte) (bool, error)) (bool, error) {
	for {
		stored, err := s.Get(ctx, k.name)
		if errors.Is(err, ErrNotFound) {
			return false, nil
		}
		if err == nil {
			is, bad := which(stored.Data)
			if bad != nil || !is {
				return false, bad
			}
			err = s.Delete(ctx, k.name, stored.Revision)
		}
		if !errors.Is(err, ErrConflict) {
			return err == nil, err
		}
	}
}

// decode reads data into v. Returns [ErrBad] with the key if it is not a JSON object of T.
func (k Key[T]) decode(data []byte, v *T) error {
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%w: the value of %q cannot be read: %w", ErrBad, k.name, err)
	}
	return nil
}

// merge returns v, a pointer to a struct, as a JSON object. It adds the fields of stored that the
// struct does not have. stored is the present JSON object, nil without one. Returns [ErrBad] if
// stored is not a JSON object.
func merge(stored []byte, v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil || stored == nil {
		return data, err
	}
	var all, own map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(stored, &all), json.Unmarshal(data, &own)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBad, err)
	}
	for field := range reflect.TypeOf(v).Elem().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		delete(all, name)
	}
	if len(all) == 0 {
		return data, nil
	}
	maps.Copy(all, own)
	return json.Marshal(all)
}
