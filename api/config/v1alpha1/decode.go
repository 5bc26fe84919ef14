package v1alpha1

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Decode reads a Cluster from YAML or JSON. A key that is unknown or comes
// twice is an error; all that is wrong comes at once.
func Decode(data []byte) (*Cluster, error) {
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, err
	}
	c := &Cluster{}
	strict, err := kjson.UnmarshalStrict(text, c)
	if err != nil {
		return nil, err
	}
	if c.APIVersion != APIVersion || c.Kind != KindCluster {
		return nil, fmt.Errorf("this is apiVersion %q, kind %q: want %s, %s", c.APIVersion, c.Kind, APIVersion, KindCluster)
	}
	c.Default()
	return c, errors.Join(append(strict, AsError(c.Validate()))...)
}

// AsError is a list of mistakes as one error, nil when there are none.
func AsError(list field.ErrorList) error {
	var errs []error
	for _, e := range list {
		errs = append(errs, e)
	}
	return errors.Join(errs...)
}
