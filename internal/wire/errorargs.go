package wire

import (
	"encoding/binary"
	"math"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/internal/rawmsgpack"
	"github.com/swarmiji/swarmiji/task"
)

// Limits of the values of an error in a record, besides task.MaxErrorArgs.
const (
	maxErrorArgsSize  = 4 << 10 // bytes
	maxErrorArgsDepth = 8
)

// encodeErrorArgs returns the values of an error as a msgpack array. Returns nil if args is empty,
// if the values exceed a limit, or if one has a type that task.RemoteError.Args does not list.
func encodeErrorArgs(args []any) []byte {
	if len(args) == 0 || len(args) > task.MaxErrorArgs {
		return nil
	}
	b, ok := appendGeneric(nil, args, maxErrorArgsDepth)
	if !ok || len(b) > maxErrorArgsSize {
		return nil
	}
	return b
}

// appendGeneric appends v, a generic value, as msgpack. It returns false if v has another type, is
// nested deeper than depth, or the result is too long.
func appendGeneric(b []byte, v any, depth int) (result []byte, ok bool) {
	if depth < 0 || len(b) > maxErrorArgsSize {
		return nil, false
	}
	switch v := v.(type) {
	case nil:
		return rawmsgpack.AppendNil(b), true
	case bool:
		return rawmsgpack.AppendBool(b, v), true
	case string:
		return rawmsgpack.AppendText(b, v), utf8.ValidString(v)
	case []byte:
		return rawmsgpack.AppendBytes(b, v), true
	case int64:
		return rawmsgpack.AppendInt(b, v), true
	case uint64:
		return rawmsgpack.AppendUint(b, v), true
	case float64:
		return binary.BigEndian.AppendUint64(append(b, 0xcb), math.Float64bits(v)), true
	case []any:
		b, ok = rawmsgpack.AppendArrayLen(b, len(v)), true
		for i := 0; i < len(v) && ok; i++ {
			b, ok = appendGeneric(b, v[i], depth-1)
		}
		return b, ok
	case map[string]any:
		b, ok = rawmsgpack.AppendMapLen(b, len(v)), true
		for key, value := range v {
			if !utf8.ValidString(key) {
				return nil, false
			}
			if b, ok = appendGeneric(rawmsgpack.AppendText(b, key), value, depth-1); !ok {
				break
			}
		}
		return b, ok
	}
	return nil, false
}

// decodeErrorArgs reads the array that encodeErrorArgs wrote. It returns nil for another value of r
// or one that exceeds a limit. An error is recorded in r.
func decodeErrorArgs(r *rawmsgpack.Reader) []any {
	raw := r.Skip()
	if r.Err() != nil || len(raw) > maxErrorArgsSize {
		return nil
	}
	inner := rawmsgpack.NewReader(raw)
	args, ok := readGeneric(&inner, maxErrorArgsDepth)
	list, isList := args.([]any)
	if inner.Err() != nil || !ok || !isList || len(list) > task.MaxErrorArgs {
		return nil
	}
	return list
}

// readGeneric reads one generic value. It returns false for a value of another type, or one that is
// nested deeper than depth.
func readGeneric(r *rawmsgpack.Reader, depth int) (v any, ok bool) {
	if depth < 0 || r.Err() != nil {
		return nil, false
	}
	switch c := r.Peek(); {
	case c == 0xc0:
		return nil, r.Nil()
	case c == 0xc2, c == 0xc3:
		return r.Bool(), true
	case r.IsText():
		return string(r.Text()), true
	case r.IsBytes():
		return append([]byte{}, r.Bytes()...), true
	case c == 0xcb:
		return math.Float64frombits(binary.BigEndian.Uint64(r.Skip()[1:])), true
	case c == 0xcf:
		n := binary.BigEndian.Uint64(r.Skip()[1:])
		if n > math.MaxInt64 {
			return n, true
		}
		return int64(n), true
	case c < 0x80, c >= 0xe0, c >= 0xcc && c <= 0xd3:
		return r.Int(), true
	case c >= 0x90 && c < 0xa0, c == 0xdc, c == 0xdd:
		list := []any{}
		for n := r.ArrayLen(); n > 0 && r.Err() == nil; n-- {
			if v, ok = readGeneric(r, depth-1); !ok {
				return nil, false
			}
			list = append(list, v)
		}
		return list, true
	case c >= 0x80 && c < 0x90, c == 0xde, c == 0xdf:
		m := map[string]any{}
		for n := r.MapLen(); n > 0 && r.Err() == nil; n-- {
			if !r.IsText() {
				return nil, false
			}
			key := string(r.Text())
			if m[key], ok = readGeneric(r, depth-1); !ok {
				return nil, false
			}
		}
		return m, true
	}
	return nil, false
}
