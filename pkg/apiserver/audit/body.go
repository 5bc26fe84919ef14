package audit

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"podium/pkg/apiserver/budget"
	"podium/pkg/scheme"
)

// maxBody is from which size on a body is left out: little more than the
// largest object that can be stored.
const maxBody = 1536 << 10

// body is what was sent or answered, as it went over the wire.
type body struct {
	data  []byte
	media string
	cut   bool // it was too large
}

// keep copies what passes by, up to the bound.
func (b *body) keep(p []byte) {
	if b.cut || len(b.data)+len(p) > maxBody {
		b.cut, b.data = true, nil
		return
	}
	b.data = append(b.data, p...)
}

// reader keeps what the handlers read of a request.
type reader struct {
	io.ReadCloser
	body *body
}

func (r reader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.body.keep(p[:n])
	return n, err
}

// bodies turns bodies into JSON.
type bodies struct{ scheme *scheme.Scheme }

// shown is how a body stands in an event: as JSON, or not at all.
type shown struct {
	json []byte
	cut  bool
}

// json is a body as JSON, its managed fields left out if so wanted. What
// cannot be read, and what is confidential, is left out.
func (d *bodies) json(b *body, omitManagedFields bool) shown {
	if b == nil || len(b.data) == 0 {
		return shown{cut: b != nil && b.cut}
	}
	text, err := d.text(b)
	if err != nil || !json.Valid(text) || holdsSecret(text) {
		return shown{}
	}
	if omitManagedFields && bytes.Contains(text, []byte(`"managedFields"`)) {
		text = withoutManagedFields(text)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		return shown{}
	}
	return shown{json: compact.Bytes()}
}

func (d *bodies) text(b *body) ([]byte, error) {
	media, _, _ := strings.Cut(b.media, ";")
	media = strings.TrimSpace(strings.ToLower(media))
	if media == scheme.JSON {
		return b.data, nil
	}
	// What was refused for its size is recorded, too, but not decoded here either.
	if _, err := budget.Cost(b.data, media); err != nil {
		return nil, err
	}
	if err := budget.Check(b.data, media); err != nil {
		return nil, err
	}
	switch {
	case strings.HasPrefix(media, scheme.Protobuf):
		obj, gvk, err := d.scheme.Decode(b.data, scheme.Protobuf, nil)
		if err != nil {
			return nil, err
		}
		obj.GetObjectKind().SetGroupVersionKind(*gvk)
		return json.Marshal(obj)
	case strings.Contains(media, "yaml"):
		return yaml.YAMLToJSON(b.data)
	}
	return b.data, nil
}

func holdsSecret(text []byte) bool {
	var head struct {
		Kind string `json:"kind"`
	}
	return json.Unmarshal(text, &head) == nil && slices.Contains(confidentialKinds, head.Kind)
}

// withoutManagedFields takes them out of an object, a list's items or a
// table's rows.
func withoutManagedFields(text []byte) []byte {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var obj map[string]any
	if err := d.Decode(&obj); err != nil {
		return text // a JSON patch, say: a list
	}
	forget(obj)
	for _, key := range []string{"items", "rows"} {
		list, _ := obj[key].([]any)
		for _, item := range list {
			inner, _ := item.(map[string]any)
			forget(inner)
			if of, ok := inner["object"].(map[string]any); ok {
				forget(of)
			}
		}
	}
	out, err := json.Marshal(obj)
	if err != nil {
		return text
	}
	return out
}

func forget(obj map[string]any) {
	if meta, ok := obj["metadata"].(map[string]any); ok {
		delete(meta, "managedFields")
	}
}
