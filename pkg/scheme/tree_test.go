package scheme

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"
)

// FuzzTreeJSON compares the encoding of trees with that of encoding/json.
func FuzzTreeJSON(f *testing.F) {
	for _, text := range []string{
		`null`, `{}`, `[]`, `{"b":1,"a":[true,false,null,-7,1.5,1e300,9223372036854775807]}`,
		`{"<a href=\"x\">&":"\u0000\u001f\u007f\u2028é\ud800","\\":"\t\n"}`,
		`{"q":1,"p":1,"o":1,"n":1,"m":1,"l":1,"k":1,"j":1,"i":1,"h":1,"g":1,"f":1,"e":1,"d":1,"c":1,"b":1,"a":{"z":{}}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var tree any
		if kjson.UnmarshalCaseSensitivePreserveInts(text, &tree) != nil {
			return
		}
		want, err := json.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		got, err := TreeJSON(tree)
		if diff := cmp.Diff(string(want), string(got)); diff != "" || err != nil {
			t.Errorf("%v\n%s", err, diff)
		}
	})
}

func TestTreeJSONOfNothing(t *testing.T) {
	for _, tree := range []any{map[string]any(nil), []any(nil), map[string]any{"a": map[string]any(nil)}} {
		want, _ := json.Marshal(tree)
		if got, err := TreeJSON(tree); err != nil || string(got) != string(want) {
			t.Errorf("%#v: %s %v, want %s", tree, got, err, want)
		}
	}
	if _, err := BareJSON(&unstructured.Unstructured{Object: map[string]any{"a": func() {}}}); err == nil {
		t.Error("a function was encoded")
	}
}
