package serializer_test

import (
	"testing"

	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/serializer/serializertest"
)

func TestJSONConforms(t *testing.T)       { serializertest.TestSerializer(t, serializer.JSON{}) }
func TestRawConforms(t *testing.T)        { serializertest.TestSerializer(t, serializer.Raw{}) }
func TestJSONFormatConforms(t *testing.T) { serializertest.TestFormat(t, serializer.JSONFormat{}) }
func TestRawFormatConforms(t *testing.T)  { serializertest.TestFormat(t, serializer.RawFormat{}) }
