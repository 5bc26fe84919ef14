package cbor

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// samples are JSON values with everything that objects are made of.
func samples() []string {
	return []string{
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","labels":{}},"spec":{"containers":[{"name":"c","args":[]}],"n":null}}`,
		`{"ints":[0,23,24,255,256,65535,65536,4294967296,9223372036854775807,-1,-24,-25,-9223372036854775808],"float":1.5,"small":1e-7}`,
		`{"text":"\u00e9 \"quoted\" \\ \n <&> \ud83d\ude00","":true,"f":false}`,
		`[[[["deep"]]],{"a":{"b":{"c":[1,2,{"d":"e"}]}}}]`,
	}
}

func decodeJSON(t *testing.T, text []byte) any {
	t.Helper()
	var v any
	if err := utiljson.Unmarshal(text, &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

// Upstream's decoder reads what the encoder writes, however the JSON is split.
func TestEncode(t *testing.T) {
	for _, text := range samples() {
		for _, step := range []int{1, 3, len(text)} {
			var out bytes.Buffer
			e := &encoder{out: &out}
			for rest := text; rest != ""; rest = rest[min(step, len(rest)):] {
				if _, err := e.Write([]byte(rest[:min(step, len(rest))])); err != nil {
					t.Fatal(err)
				}
			}
			if err := e.Flush(); err != nil {
				t.Fatal(err)
			}
			var got any
			if err := direct.Unmarshal(out.Bytes(), &got); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if diff := cmp.Diff(decodeJSON(t, []byte(text)), got); diff != "" {
				t.Errorf("in steps of %d (-want +got):\n%s", step, diff)
			}
		}
	}
}

// The decoder reads what upstream's encoder writes.
func TestToJSON(t *testing.T) {
	for _, text := range samples() {
		want := decodeJSON(t, []byte(text))
		data, err := direct.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ToJSON(data, 1<<20)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if diff := cmp.Diff(want, decodeJSON(t, got)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestToJSONOfItems(t *testing.T) {
	for name, row := range map[string]struct{ reason, hex, want string }{
		"bytes":             {"a Secret's data", "a1616 1d643010203", `{"a":"AQID"}`},
		"self-described":    {"upstream's clients mark their bodies", "d9d9f7a0", "{}"},
		"text":              {"other encoders write text strings", "a1616161 62", `{"a":"b"}`},
		"parts":             {"a string of two parts", "5f41614162ff", `"ab"`},
		"open containers":   {"their length is not known first", "bf41619f01f6ffff", `{"a":[1,null]}`},
		"time":              {"seconds since 1970", "c11a514b67b0", `"2013-03-21T20:04:00Z"`},
		"half":              {"the shortest float", "f93e00", "1.5"},
		"whole float":       {"a float remains one", "f93c00", "1.0"},
		"negative":          {"", "38ff", "-256"},
		"twice":             {"which of both is meant?", "a2416101416102", `!CBOR map with the key "a" twice`},
		"integer key":       {"JSON has none", "a10102", "!CBOR map with a key that is no string"},
		"large integer":     {"JSON's readers would round it", "1bffffffffffffffff", "!CBOR integer of more than 64 bits"},
		"bignum":            {"", "c24101", "!CBOR integer of more than 64 bits"},
		"infinity":          {"JSON has none", "f97c00", "!CBOR number that is not finite"},
		"undefined":         {"JSON has none", "f7", "!CBOR simple value 23"},
		"no UTF-8":          {"JSON has none", "41ff", "!CBOR string that is not UTF-8"},
		"cut":               {"", "a141", "!unexpected end of CBOR"},
		"long string":       {"its length is a lie", "5b7fffffffffffffff61", "!unexpected end of CBOR"},
		"long array":        {"its length is a lie", "9b7fffffffffffffff01", "!unexpected end of CBOR"},
		"more":              {"one object a body", "a0a0", "!1 bytes after the end of the CBOR item"},
		"end without begin": {"", "ff", "!CBOR item of indefinite length that can have none"},
	} {
		data, err := hex.DecodeString(strings.ReplaceAll(row.hex, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		out, err := ToJSON(data, 1<<20)
		got := string(out)
		if err != nil {
			got = "!" + err.Error()
		}
		if got != row.want {
			t.Errorf("%s: %s: got %s, want %s", name, row.reason, got, row.want)
		}
	}
}

// A short body cannot take much memory or stack.
func TestToJSONIsBounded(t *testing.T) {
	for name, data := range map[string][]byte{
		"deep":     bytes.Repeat([]byte{0x81}, 1<<20),
		"deep tag": bytes.Repeat([]byte{0xc5}, 1<<20),
		"wide":     append([]byte{0x9f}, bytes.Repeat([]byte{0xf6}, 1<<20)...),
		"escapes":  append([]byte{0x7a, 0, 0x10, 0, 0}, make([]byte, 1<<20)...),
		"pairs":    append([]byte{0xbf}, bytes.Repeat([]byte{0x40, 0x00}, 1<<19)...),
	} {
		if _, err := ToJSON(data, 3<<20); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// handler answers with what it received.
func handler(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Accept") == "text/plain" {
		w.Header().Set("Content-Type", "text/plain")
		w.Write([]byte("text"))
		return
	}
	var body bytes.Buffer
	body.ReadFrom(r.Body)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", "1000")
	w.WriteHeader(http.StatusCreated)
	json.NewEncoder(w).Encode(map[string]any{"type": r.Header.Get("Content-Type"), "accept": r.Header.Get("Accept"), "body": body.String()})
}

func TestServe(t *testing.T) {
	body, err := direct.Marshal(map[string]any{"a": int64(1)})
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		reason, accept, media string
		body                  []byte
		wantMedia             string
		want                  map[string]any // nil: not CBOR
	}{
		"both":   {"an object in CBOR", Media, Media, body, Media, map[string]any{"type": "application/json", "accept": "application/json", "body": `{"a":1}`}},
		"apply":  {"server-side apply", "application/cbor, application/json;q=0.9", Apply, body, Media, map[string]any{"type": applyText, "accept": "application/json, application/json;q=0.9", "body": `{"a":1}`}},
		"table":  {"parameters are kept", "application/cbor;as=Table;g=meta.k8s.io;v=v1", "application/json", []byte("{}"), Media, map[string]any{"type": "application/json", "accept": "application/json;as=Table;g=meta.k8s.io;v=v1", "body": "{}"}},
		"second": {"JSON is preferred", "application/json, application/cbor;q=0.5", "application/json", []byte("{}"), "application/json", nil},
		"text":   {"logs stay as they are", "text/plain", "", nil, "text/plain", nil},
		"broken": {"a body that is no CBOR", Media, Media, []byte{0xff}, "application/json", nil},
	} {
		r := httptest.NewRequest("POST", "/", bytes.NewReader(row.body))
		r.Header.Set("Accept", row.accept)
		r.Header.Set("Content-Type", row.media)
		w := httptest.NewRecorder()
		Serve(w, r, http.HandlerFunc(handler))
		if got := w.Header().Get("Content-Type"); got != row.wantMedia {
			t.Errorf("%s: %s: media type %s", name, row.reason, got)
		}
		if row.want == nil {
			continue
		}
		var got map[string]any
		if err := direct.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(row.want, got); diff != "" || w.Code != http.StatusCreated || w.Header().Get("Content-Length") != "" {
			t.Errorf("%s: %s: %d\n%s", name, row.reason, w.Code, diff)
		}
	}
}

func FuzzToJSON(f *testing.F) {
	for _, text := range samples() {
		var v any
		if utiljson.Unmarshal([]byte(text), &v) == nil {
			data, _ := direct.Marshal(v)
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		const limit = 1 << 20
		text, err := ToJSON(data, limit)
		if err != nil {
			return
		}
		if !json.Valid(text) || len(text) > limit {
			t.Fatalf("%x became %q", data, text)
		}
		var out bytes.Buffer
		e := &encoder{out: &out}
		if _, err := e.Write(text); err != nil {
			t.Fatal(err)
		}
		if err := e.Flush(); err != nil {
			t.Fatal(err)
		}
		again, err := ToJSON(out.Bytes(), 2*limit)
		if err != nil {
			t.Fatalf("%q does not survive: %v", text, err)
		}
		if !bytes.Equal(again, text) && !json.Valid(again) {
			t.Fatalf("%q became %q", text, again)
		}
	})
}
