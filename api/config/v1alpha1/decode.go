package v1alpha1

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// file is implemented by the kinds of configuration files.
type file interface {
	Default()
	Validate() field.ErrorList
}

// Decode parses a Cluster from YAML or JSON, sets its defaults and validates
// it. Unknown and duplicate keys are errors. It returns all errors at once.
func Decode(data []byte) (*Cluster, error) {
	c := &Cluster{}
	return c, decode(data, KindCluster, &c.TypeMeta, c)
}

// decode parses a file of a kind into f, whose TypeMeta is is, then sets the
// defaults and validates it.
func decode(data []byte, kind string, is *metav1.TypeMeta, f file) error {
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return err
	}
	strict, err := kjson.UnmarshalStrict(text, f)
	if err != nil {
		return err
	}
	if is.APIVersion != APIVersion || is.Kind != kind {
		return fmt.Errorf("this is apiVersion %q, kind %q: want %s, %s", is.APIVersion, is.Kind, APIVersion, kind)
	}
	f.Default()
	return errors.Join(append(strict, AsError(f.Validate()))...)
}

// AsError converts a list of errors to one error; an empty list to nil.
func AsError(list field.ErrorList) error {
	var errs []error
	for _, e := range list {
		errs = append(errs, e)
	}
	return errors.Join(errs...)
}
