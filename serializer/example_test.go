package serializer_test

import (
	"fmt"

	"github.com/swarmiji/swarmiji/serializer"
)

// A consumer with this serializer refuses arguments with a misspelt field. Pass it as an element of
// Wire.Serializers in the configuration of the consumer.
func ExampleJSON_disallowUnknownFields() {
	var pair struct {
		A int `json:"a"`
		B int `json:"b"`
	}
	data := []byte(`{"a": 1, "bb": 2}`)
	fmt.Println(serializer.JSON{}.Unmarshal(data, &pair), pair)
	fmt.Println(serializer.JSON{DisallowUnknownFields: true}.Unmarshal(data, &pair))
	// Output:
	// <nil> {1 0}
	// serializer: value does not fit: json: unknown field "bb"
}
