package encryption

import (
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/scheme"
)

// Configuration is upstream's EncryptionConfiguration, apiserver.config.k8s.io/v1.
// https://kubernetes.io/docs/reference/config-api/apiserver-config.v1/
type Configuration struct {
	metav1.TypeMeta `json:",inline"`
	Resources       []ResourceConfiguration `json:"resources"`
}

// ResourceConfiguration says how some resources are kept.
type ResourceConfiguration struct {
	Resources []string                `json:"resources"` // secrets, deployments.apps, *.apps, *. (core), *.*
	Providers []ProviderConfiguration `json:"providers"` // the first writes, all read
}

// ProviderConfiguration is one provider: exactly one field is set.
type ProviderConfiguration struct {
	AESGCM    *KeysConfiguration `json:"aesgcm,omitempty"`
	AESCBC    *KeysConfiguration `json:"aescbc,omitempty"`
	Secretbox *KeysConfiguration `json:"secretbox,omitempty"`
	Identity  *struct{}          `json:"identity,omitempty"`
	KMS       *KMSConfiguration  `json:"kms,omitempty"`
}

// KeysConfiguration lists a provider's keys: the first one writes, all read.
type KeysConfiguration struct {
	Keys []Key `json:"keys"`
}

// Key is a named key.
type Key struct {
	Name   string `json:"name"`
	Secret string `json:"secret"` // base64
}

// String leaves the secret out, so that no log line can hold it.
func (k Key) String() string { return fmt.Sprintf("Name: %s, Secret: [REDACTED]", k.Name) }

// GoString does so for %#v.
func (k Key) GoString() string { return k.String() }

// KMSConfiguration names a key management plugin.
type KMSConfiguration struct {
	APIVersion string           `json:"apiVersion"` // only v2 is served
	Name       string           `json:"name"`
	CacheSize  *int32           `json:"cachesize,omitempty"` // of v1 only, so refused
	Endpoint   string           `json:"endpoint"`            // unix:///path
	Timeout    *metav1.Duration `json:"timeout,omitempty"`   // of a call; default 3 s
}

const defaultTimeout = 3 * time.Second

func (c *KMSConfiguration) timeout() time.Duration {
	if c.Timeout == nil {
		return defaultTimeout
	}
	return c.Timeout.Duration
}

var configurationKind = schema.GroupVersionKind{Group: "apiserver.config.k8s.io", Version: "v1", Kind: "EncryptionConfiguration"}

// Parse reads and validates a configuration file. All its errors come at once,
// with the paths of the fields and without any secret.
func Parse(data []byte) (*Configuration, error) {
	c := &Configuration{}
	decodeErr := scheme.DecodeFile(data, configurationKind, c)
	if decodeErr != nil && len(c.Resources) == 0 {
		return nil, decodeErr
	}
	if err := errors.Join(decodeErr, c.validate().ToAggregate()); err != nil {
		return nil, err
	}
	return c, nil
}
