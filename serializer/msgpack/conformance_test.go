package msgpack_test

import (
	"testing"

	"github.com/swarmiji/swarmiji/serializer/msgpack"
	"github.com/swarmiji/swarmiji/serializer/serializertest"
)

func TestSerializerConforms(t *testing.T) { serializertest.TestSerializer(t, msgpack.Serializer{}) }
func TestCompactConforms(t *testing.T)    { serializertest.TestFormat(t, msgpack.Compact{}) }
