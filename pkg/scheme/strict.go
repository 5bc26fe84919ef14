package scheme

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	sigsyaml "sigs.k8s.io/yaml"
)

// DecodeFile decodes a Kubernetes configuration file, one YAML or JSON document of
// kind gvk, into a pointer to its Go type. Unknown and duplicate fields are errors.
// It returns all errors at once; they do not contain values of the file.
func DecodeFile(data []byte, gvk schema.GroupVersionKind, into any) error {
	doc, err := onlyDocument(data)
	if err != nil {
		return err
	}
	text, err := sigsyaml.YAMLToJSONStrict(doc)
	if err != nil {
		return err
	}
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &head); err != nil {
		return fmt.Errorf("this is no %s: %w", gvk.Kind, err)
	}
	if want := gvk.GroupVersion().String(); head.APIVersion != want || head.Kind != gvk.Kind {
		return fmt.Errorf("the file must have apiVersion: %s and kind: %s", want, gvk.Kind)
	}
	problems, err := kjson.UnmarshalStrict(text, into)
	return errors.Join(append(problems, err)...)
}

// onlyDocument returns the only document of a file, or an error if the file has no
// document or several.
func onlyDocument(data []byte) ([]byte, error) {
	var only []byte
	for r := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		doc, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		switch {
		case len(bytes.TrimSpace(doc)) == 0:
		case only != nil:
			return nil, errors.New("there is more than one document in the file")
		default:
			only = doc
		}
	}
	if only == nil {
		return nil, errors.New("the file is empty")
	}
	return only, nil
}
