package v1alpha1

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// file is one of the kinds that people write.
type file interface {
	Default()
	Validate() field.ErrorList
}

// Decode reads a Cluster from YAML or JSON. A key that is unknown or comes
// twice is an error; all that is wrong comes at once.
func Decode(data []byte) (*Cluster, error) {
	c := &Cluster{}
	return c, decode(data, KindCluster, &c.TypeMeta, c)
}

// decode reads a file of a kind; is is its own TypeMeta.
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

// AsError is a list of mistakes as one error, nil when there are none.
func AsError(list field.ErrorList) error {
	var errs []error
	for _, e := range list {
		errs = append(errs, e)
	}
	return errors.Join(errs...)
}
