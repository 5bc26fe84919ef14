package endpoints

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"podium/pkg/scheme"
)

// FuzzObjects: in what is JSON, no object is missed.
func FuzzObjects(f *testing.F) {
	f.Add([]byte(`{"a":{"b":[{},{}]},"c":"{\"{"}`))
	f.Add([]byte(`["\\",{}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if !json.Valid(data) {
			objects(data)
			return
		}
		want := 0
		for d := json.NewDecoder(bytes.NewReader(data)); ; {
			token, err := d.Token()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Skip(err)
			}
			if token == json.Delim('{') {
				want++
			}
		}
		if got := objects(data); got != want {
			t.Errorf("%d objects were counted in %q, there are %d", got, data, want)
		}
	})
}

// FuzzTinyFields: no bytes make it run for long, and what is a message with tiny
// fields is seen to have them.
func FuzzTinyFields(f *testing.F) {
	f.Add([]byte("k8s\x00\x12\x02\x12\x00"), uint8(3))
	f.Fuzz(func(t *testing.T, data []byte, times uint8) {
		tinyFields(data, 0)
		message := bytes.Repeat([]byte("\x12\x00"), int(times))
		wrapped := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), message)
		if got := tinyFields(wrapped, 0); times > 1 && got != int(times) {
			t.Errorf("%d fields were counted, there are %d", got, times)
		}
	})
}

func TestCheckBulk(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, media, body string
		ok                  bool
	}{
		"as many as are read":    {"the bound itself is let through", scheme.JSON, strings.Repeat("{}", maxObjects), true},
		"one more":               {"each may take a thousand bytes", scheme.JSON, strings.Repeat("{}", maxObjects+1), false},
		"braces in strings":      {"a ConfigMap may hold a file of JSON", scheme.JSON, `{"data":{"f":"` + strings.Repeat(`{\"`, maxObjects) + `"}}`, true},
		"applied as JSON":        {"what clients send when they apply", applyYAML, `{"data":{"f":"` + strings.Repeat("x", maxPlainYAML) + `"}}`, true},
		"a lot of YAML":          {"its reader needs a hundred bytes for each", scheme.YAML, "a: " + strings.Repeat("x", maxPlainYAML), false},
		"many items of YAML":     {"each may be an object", scheme.YAML, strings.Repeat("- a\n", maxObjects+1), false},
		"items within items":     {"a line may begin several", scheme.YAML, strings.Repeat("- - - a\n", maxObjects/3+1), false},
		"a long file, protobuf":  {"bytes are not fields", scheme.Protobuf, "k8s\x00" + string(protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), bytes.Repeat([]byte("x"), 1<<20))), true},
		"many fields, protobuf":  {"two bytes may be a container", scheme.Protobuf, "k8s\x00" + strings.Repeat("\x12\x00", maxTiny+1), false},
		"many numbers, protobuf": {"numbers are what they are", scheme.Protobuf, "k8s\x00" + strings.Repeat("\x10\x01", maxTiny+1), true},
	} {
		t.Run(name, func(t *testing.T) {
			if err := checkBulk([]byte(tc.body), tc.media); (err == nil) != tc.ok {
				t.Errorf("%v; %s", err, tc.reason)
			}
		})
	}
}
