package wire

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// Args are the arguments of a call as Python writes them. As a handler's argument it takes any
// call: whole numbers are int64 or uint64, maps are map[string]any, and lists are []any.
type Args struct {
	Args   []any          // positional arguments
	Kwargs map[string]any // keyword arguments
}

// JSONArgs is the [serializer.Serializer] of a task's arguments in JSON, [ContentJSONArgs]. The
// zero value is ready to use.
//
// Unmarshal binds the arguments to a variable by its type:
//
//   - An [Args] takes all arguments.
//   - A struct takes one argument for each exported field.
//   - Any other variable takes exactly one positional argument. A struct that decodes itself, such
//     as [time.Time], counts as one.
//   - A variable of type any takes one argument as it is, and other calls as an [Args].
//
// The tag of a field is `celery:"position,keyword,optional"`, each part may be left out. Without a
// tag a field has the next position. Its keyword is the name in its json tag, or the name of the
// field in snake case. A tag with an empty position makes the field keyword-only. "-" leaves the
// field out. An optional field keeps its value if the call does not have the argument.
//
// Missing, surplus and wrongly typed arguments are [serializer.ErrValue] and are named.
//
// Marshal does the reverse. Optional fields with the zero value are left out. Whole floats keep
// their fraction, as 2.0, and a []byte is refused, as Celery does.
type JSONArgs struct{}

// ContentType returns [ContentJSONArgs].
func (JSONArgs) ContentType() string { return ContentJSONArgs }

// Marshal implements [serializer.Serializer]. Returns [serializer.ErrValue] if v cannot be encoded.
func (JSONArgs) Marshal(v any) ([]byte, error) { return marshalArgs(jsonCoding{}, v) }

// Unmarshal implements [serializer.Serializer]. Returns [serializer.ErrMalformed] if data is not
// JSON, or not a list of a list and a map.
func (JSONArgs) Unmarshal(data []byte, v any) error { return unmarshalArgs(jsonCoding{}, data, v) }

// Prepend returns args with value as the first positional argument. No args are an empty call.
func (JSONArgs) Prepend(args []byte, value any) ([]byte, error) {
	return prepend(jsonCoding{}, args, value)
}

// PrependFailure returns args with the id of the failed task as the first positional argument,
// which is what Celery gives an error callback.
func (JSONArgs) PrependFailure(args []byte, f task.Failure) ([]byte, error) {
	return prepend(jsonCoding{}, args, string(f.ID))
}

// MsgpackArgs is [JSONArgs] in msgpack, [ContentMsgpackArgs]. It carries bytes. The zero value is
// ready to use.
type MsgpackArgs struct{}

// ContentType returns [ContentMsgpackArgs].
func (MsgpackArgs) ContentType() string { return ContentMsgpackArgs }

// Marshal implements [serializer.Serializer]. Returns [serializer.ErrValue] if v cannot be encoded.
func (MsgpackArgs) Marshal(v any) ([]byte, error) { return marshalArgs(msgpackCoding{}, v) }

// Unmarshal implements [serializer.Serializer]. Returns [serializer.ErrMalformed] if data is not
// msgpack, or not a list of a list and a map.
func (MsgpackArgs) Unmarshal(data []byte, v any) error {
	return unmarshalArgs(msgpackCoding{}, data, v)
}

// Prepend returns args with value as the first positional argument. No args are an empty call.
// Returns [serializer.ErrValue] for a whole number of more than 64 bits.
func (MsgpackArgs) Prepend(args []byte, value any) ([]byte, error) {
	value, err := withoutNumbers(value)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", serializer.ErrValue, err)
	}
	return prepend(msgpackCoding{}, args, value)
}

// PrependFailure returns args with the id of the failed task as the first positional argument.
func (MsgpackArgs) PrependFailure(args []byte, f task.Failure) ([]byte, error) {
	return prepend(msgpackCoding{}, args, string(f.ID))
}

// call is a call whose arguments are still encoded.
type call struct {
	args   [][]byte
	kwargs []member
}

// readCall returns the arguments in data, a list of a list and a map. No data is an empty call.
func readCall(c coding, data []byte) (call, error) {
	var made call
	if len(data) == 0 {
		return made, nil
	}
	if err := c.check(data); err != nil {
		return made, err
	}
	parts, err := c.list(data)
	if err == nil && len(parts) != 2 {
		err = fmt.Errorf("want a list of two, positional and keyword arguments, not of %d", len(parts))
	}
	if err == nil {
		made.args, err = c.list(parts[0])
	}
	if err == nil {
		made.kwargs, err = c.members(parts[1])
	}
	if err != nil {
		return call{}, fmt.Errorf("%w: arguments of Celery: %w", serializer.ErrMalformed, err)
	}
	return made, nil
}

// write returns the encoded call.
func (made *call) write(c coding) ([]byte, error) {
	kwargs, err := c.joinMembers(made.kwargs)
	if err != nil {
		return nil, err
	}
	return c.join(c.join(made.args...), kwargs), nil
}

// prepend returns data with value as the first positional argument.
func prepend(c coding, data []byte, value any) ([]byte, error) {
	made, err := readCall(c, data)
	if err != nil {
		return nil, err
	}
	first, err := c.encode(value)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", serializer.ErrValue, err)
	}
	made.args = append([][]byte{first}, made.args...)
	return made.write(c)
}

// marshalArgs returns v as an encoded call.
func marshalArgs(c coding, v any) ([]byte, error) {
	data, err := encodeArgs(c, v)
	if err == nil {
		err = c.check(data)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", serializer.ErrValue, err)
	}
	return data, nil
}

// encodeArgs does the work of marshalArgs without a check of the result.
func encodeArgs(c coding, v any) ([]byte, error) {
	var made call
	value := reflect.ValueOf(v)
	for value.Kind() == reflect.Pointer && !value.IsNil() && !decodesItself(value.Type().Elem()) {
		value = value.Elem()
	}
	switch {
	case value.IsValid() && value.Type() == reflect.TypeFor[Args]():
		if err := made.set(c, value.Interface().(Args)); err != nil {
			return nil, err
		}
	case value.IsValid() && value.Kind() == reflect.Struct && !decodesItself(value.Type()):
		p, err := parametersOf(value.Type())
		if err != nil {
			return nil, err
		}
		if err := p.write(c, value, &made); err != nil {
			return nil, err
		}
	default:
		one, err := c.encode(v)
		if err != nil {
			return nil, err
		}
		made.args = [][]byte{one}
	}
	return made.write(c)
}

// set sets the arguments of the call to those of a.
func (made *call) set(c coding, a Args) error {
	for i, v := range a.Args {
		data, err := c.encode(v)
		if err != nil {
			return fmt.Errorf("argument %d: %w", i, err)
		}
		made.args = append(made.args, data)
	}
	for _, name := range sortedKeys(a.Kwargs) {
		data, err := c.encode(a.Kwargs[name])
		if err != nil {
			return fmt.Errorf("argument %s: %w", name, err)
		}
		made.kwargs = append(made.kwargs, member{name, data})
	}
	return nil
}

// unmarshalArgs decodes an encoded call into v.
func unmarshalArgs(c coding, data []byte, v any) error {
	made, err := readCall(c, data)
	if err != nil {
		return err
	}
	if err := made.bind(c, v); err != nil {
		return fmt.Errorf("%w: %w", serializer.ErrValue, err)
	}
	return nil
}

// bind decodes the call into v, a pointer.
func (made *call) bind(c coding, v any) error {
	target := reflect.ValueOf(v)
	if target.Kind() != reflect.Pointer || target.IsNil() {
		return errors.New("arguments need a pointer to a variable")
	}
	switch t := target.Type().Elem(); {
	case t == reflect.TypeFor[Args]():
		all, err := made.generic(c)
		if err == nil {
			*v.(*Args) = all
		}
		return err
	case t.Kind() == reflect.Pointer && t.Elem() == reflect.TypeFor[Args](),
		t.Kind() == reflect.Pointer && isParameters(t.Elem()):
		fresh := reflect.New(t.Elem())
		if err := made.bind(c, fresh.Interface()); err != nil {
			return err
		}
		target.Elem().Set(fresh)
		return nil
	case isParameters(t):
		p, err := parametersOf(t)
		if err != nil {
			return err
		}
		return p.read(c, made, target.Elem())
	case t == reflect.TypeFor[any]() && (len(made.args) != 1 || len(made.kwargs) > 0):
		all, err := made.generic(c)
		if err == nil {
			target.Elem().Set(reflect.ValueOf(all))
		}
		return err
	}
	if len(made.kwargs) > 0 {
		return fmt.Errorf("unexpected keyword argument %s; the handler takes one positional argument", shown(made.kwargs[0].name))
	}
	if len(made.args) != 1 {
		return fmt.Errorf("%d positional arguments; the handler takes one", len(made.args))
	}
	if err := c.decode(made.args[0], v); err != nil {
		return fmt.Errorf("argument 0: %w", err)
	}
	return nil
}

// generic returns the call as Args.
func (made *call) generic(c coding) (Args, error) {
	all := Args{Args: make([]any, len(made.args)), Kwargs: make(map[string]any, len(made.kwargs))}
	var err error
	for i, data := range made.args {
		if all.Args[i], err = c.value(data); err != nil {
			return Args{}, fmt.Errorf("argument %d: %w", i, err)
		}
	}
	for _, m := range made.kwargs {
		if all.Kwargs[m.name], err = c.value(m.value); err != nil {
			return Args{}, fmt.Errorf("argument %s: %w", shown(m.name), err)
		}
	}
	return all, nil
}

var (
	_ serializer.Composer = JSONArgs{}
	_ serializer.Composer = MsgpackArgs{}
)
