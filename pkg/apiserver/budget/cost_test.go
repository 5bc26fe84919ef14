package budget

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"sigs.k8s.io/yaml"

	"podium/pkg/scheme"
)

const applyYAML = "application/apply-patch+yaml"

// check runs the checks of a body that the server makes before it decodes it.
func check(data []byte, media string) (int64, error) {
	cost, err := Cost(data, media)
	if err == nil {
		err = Check(data, media)
	}
	return cost, err
}

// FuzzCount checks that count misses no object and no list element of valid
// JSON.
func FuzzCount(f *testing.F) {
	f.Add([]byte(`{"a":{"b":[{},{}]},"c":"{\"{"}`))
	f.Add([]byte(`["\\",{},0,[1,[2]]]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, _ := count(data)
		if !json.Valid(data) {
			return
		}
		least := 0
		for d := json.NewDecoder(bytes.NewReader(data)); ; {
			token, err := d.Token()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Skip(err)
			}
			if token == json.Delim('{') {
				least++
			}
		}
		if got < least {
			t.Errorf("%d objects were counted in %q, there are %d", got, data, least)
		}
	})
}

// FuzzProtoFields checks that scan terminates quickly on any input, and that it
// counts the tiny fields of valid messages.
func FuzzProtoFields(f *testing.F) {
	f.Add([]byte("k8s\x00\x12\x02\x12\x00"), uint8(3))
	f.Fuzz(func(t *testing.T, data []byte, times uint8) {
		(&fields{}).scan(data, 0)
		message := bytes.Repeat([]byte("\x12\x00"), int(times))
		wrapped := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), message)
		var got fields
		if got.scan(wrapped, 0); times > 1 && got.tiny != int(times) {
			t.Errorf("%d fields were counted, there are %d", got.tiny, times)
		}
	})
}

// FuzzYAML checks that YAML which passes stays short when converted to JSON.
func FuzzYAML(f *testing.F) {
	f.Add([]byte("a: &a xxxxxxxxxxxxxxxxxxxx\nb: [*a, *a]\nc: {<<: &m {k: v}, d: *m}\n"))
	f.Add([]byte("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		cost, err := check(data, scheme.YAML)
		if err != nil {
			return
		}
		text, err := yaml.YAMLToJSON(data)
		// An unprintable byte takes six in JSON.
		if err == nil && int64(len(text)) > 6*cost+100 {
			t.Errorf("%d bytes of JSON, %d were estimated", len(text), cost)
		}
	})
}

func bomb(levels int) string {
	text := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := 1; i < levels; i++ {
		text += fmt.Sprintf("a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 10), ","))
	}
	return text
}

func TestCheck(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, media, body string
		ok                  bool
	}{
		"as many as are read":    {"the bound itself is let through", scheme.JSON, "[" + strings.Repeat("{},", maxObjects-1) + "{}]", true},
		"one more":               {"each may take a thousand bytes", scheme.JSON, "[" + strings.Repeat("{},", maxObjects) + "{}]", false},
		"numbers in a list":      {"an element of the wrong type takes the space of a right one", scheme.JSON, `{"a":[` + strings.Repeat("0,", maxObjects) + "0]}", false},
		"keys of a map":          {"they become no objects", scheme.JSON, `{` + strings.Repeat(`"k":"",`, 2*maxObjects) + `"k":""}`, true},
		"objects nested deeply":  {"deeper than is told apart", scheme.JSON, strings.Repeat(`{"a":`, 5000) + "{}" + strings.Repeat("}", 5000), true},
		"braces in strings":      {"a ConfigMap may hold a file of JSON", scheme.JSON, `{"data":{"f":"` + strings.Repeat(`{\"`, maxObjects) + `"}}`, true},
		"applied as JSON":        {"what clients send when they apply", applyYAML, `{"data":{"f":"` + strings.Repeat("x", maxPlainYAML) + `"}}`, true},
		"a star in JSON":         {"it is no alias", applyYAML, `{"data":{"f":"*` + strings.Repeat("x", maxPlainYAML) + `"}}`, true},
		"a lot of YAML":          {"its reader needs a hundred bytes for each", scheme.YAML, "a: " + strings.Repeat("x", maxPlainYAML), false},
		"nearly JSON":            {"a plain scalar with a quotation mark would hide aliases", scheme.YAML, `{x: it"s, a: ` + strings.Repeat("x", maxPlainYAML) + "}", false},
		"many items of YAML":     {"each may be an object", scheme.YAML, strings.Repeat("- a\n", maxObjects+1), false},
		"empty items":            {"no space behind the dash", scheme.YAML, strings.Repeat("-\n", maxObjects+1), false},
		"items within items":     {"a line may begin several", scheme.YAML, strings.Repeat("- - - a\n", maxObjects/2+1), false},
		"a file of commas":       {"a ConfigMap may hold a table", scheme.YAML, "data:\n  f: |\n" + strings.Repeat("    a,b,c,d,e,f\n", 20000), true},
		"an anchor":              {"upstream reads it", scheme.YAML, "a: &a {k: v}\nb: *a\nc: {<<: *a, l: w}\n", true},
		"a role":                 {"a star is a string here", scheme.YAML, "rules:\n- verbs: ['*']\n  resources: [\"*\"]\n", true},
		"a long scalar":          {"the one request that ended a server", scheme.YAML, "a: &a \"" + strings.Repeat("x", 100_000) + "\"\nb: [" + strings.Repeat("*a,", 40_000) + "*a]\n", false},
		"a scalar, applied":      {"the same as a patch", applyYAML, "a: &a \"" + strings.Repeat("x", 10_000) + "\"\nb: [" + strings.Repeat("*a,", 1000) + "*a]\n", false},
		"a scalar in flow style": {"it begins like JSON", scheme.YAML, "{a: &a " + strings.Repeat("x", 10_000) + ", b: [" + strings.Repeat("*a,", 1000) + "*a]}\n", false},
		"a billion laughs":       {"each level is ten of the one before", scheme.YAML, bomb(12), false},
		"a few laughs":           {"a thousand are fine", scheme.YAML, bomb(3), true},
		"merge keys":             {"they are copied, too", scheme.YAML, "a: &a {" + strings.Repeat("kkkkkkkkkkkkkkkkkkkk: v,", 500) + "}\nb:\n" + strings.Repeat("- <<: *a\n", 1000), false},
		"an alias of itself":     {"it has no end", scheme.YAML, "a: &a [*a]\n", false},
		"another document":       {"the sum counts", scheme.YAML, "a: 1\n---\n" + bomb(12), false},
		"UTF-16":                 {"what is counted are bytes", scheme.YAML, "\xff\xfea\x00:\x00 \x001\x00", false},
		"a long file, protobuf":  {"bytes are not fields", scheme.Protobuf, "k8s\x00" + string(protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), bytes.Repeat([]byte("x"), 1<<20))), true},
		"many fields, protobuf":  {"two bytes may be a container", scheme.Protobuf, "k8s\x00" + strings.Repeat("\x12\x00", maxTiny+1), false},
		"longer ones, protobuf":  {"a container with a name of four bytes", scheme.Protobuf, "k8s\x00" + strings.Repeat("\x12\x06\x0a\x04abcd", maxFields/2+1), false},
		"many numbers, protobuf": {"numbers are what they are", scheme.Protobuf, "k8s\x00" + strings.Repeat("\x10\x01", maxTiny+1), true},
	} {
		t.Run(name, func(t *testing.T) {
			if cost, err := check([]byte(tc.body), tc.media); (err == nil) != tc.ok {
				t.Errorf("cost %d, %v; %s", cost, err, tc.reason)
			}
		})
	}
}

func TestCostOfOrdinaryBodiesAllocatesNothing(t *testing.T) {
	pod := []byte(`{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","args":["a","b"]}]}}`)
	for _, media := range []string{scheme.JSON, scheme.Protobuf, "application/merge-patch+json"} {
		if n := testing.AllocsPerRun(100, func() { Cost(pod, media) }); n != 0 {
			t.Errorf("%s: %v allocations", media, n)
		}
	}
	if cost, err := Cost(pod, scheme.JSON); err != nil || cost > Small {
		t.Errorf("%d, %v", cost, err)
	}
}
