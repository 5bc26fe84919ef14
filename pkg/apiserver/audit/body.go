package audit

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"podium/pkg/apiserver/budget"
	"podium/pkg/apiserver/cbor"
	"podium/pkg/scheme"
)

// maxBody is the size, in bytes, above which a body is left out: slightly more
// than the largest object that can be stored.
const maxBody = 1536 << 10

// body is a request's or response's body as transferred.
type body struct {
	data  []byte
	media string
	cut   bool // it was too large, and data is nil
}

// keep appends a copy of p, or discards everything once the body exceeds
// maxBody.
func (b *body) keep(p []byte) {
	if b.cut || len(b.data)+len(p) > maxBody {
		b.cut, b.data = true, nil
		return
	}
	b.data = append(b.data, p...)
}

// reader copies to body what the handlers read of a request.
type reader struct {
	io.ReadCloser
	body *body
}

func (r reader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.body.keep(p[:n])
	return n, err
}

// bodies converts bodies to JSON.
type bodies struct{ scheme *scheme.Scheme }

// shown is a body as an event contains it: compact JSON, or nil if it is left
// out.
type shown struct {
	json []byte
	cut  bool
}

// json returns a body as JSON, without managed fields if omitManagedFields is
// set. It leaves out bodies that cannot be decoded and those of confidential
// kinds.
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

// text returns a body as JSON, not necessarily valid if it was sent as JSON. It
// returns an error if decoding is not possible or too costly.
func (d *bodies) text(b *body) ([]byte, error) {
	media, _, _ := strings.Cut(b.media, ";")
	media = strings.TrimSpace(strings.ToLower(media))
	if media == scheme.JSON {
		return b.data, nil
	}
	if media == cbor.Media || media == cbor.Apply {
		text, err := cbor.ToJSON(b.data, 2*maxBody)
		if err == nil {
			_, err = budget.Cost(text, scheme.JSON)
		}
		return text, err
	}
	// Do not decode a body here that the server has refused to decode for its
	// cost.
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

// holdsSecret reports whether a JSON object is of a confidential kind.
func holdsSecret(text []byte) bool {
	var head struct {
		Kind string `json:"kind"`
	}
	return json.Unmarshal(text, &head) == nil && slices.Contains(confidentialKinds, head.Kind)
}

// withoutManagedFields removes managed fields from an object, the items of a
// list or the rows of a table. It returns text as it is if it is not a JSON
// object.
func withoutManagedFields(text []byte) []byte {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var obj map[string]any
	if err := d.Decode(&obj); err != nil {
		return text // for example a JSON patch, which is a list
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

// forget removes the managed fields of one object.
func forget(obj map[string]any) {
	if meta, ok := obj["metadata"].(map[string]any); ok {
		delete(meta, "managedFields")
	}
}
