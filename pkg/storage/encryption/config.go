package encryption

import (
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/scheme"
)

// Configuration is an EncryptionConfiguration of apiserver.config.k8s.io/v1.
// https://kubernetes.io/docs/reference/config-api/apiserver-config.v1/
type Configuration struct {
	metav1.TypeMeta `json:",inline"`
	Resources       []ResourceConfiguration `json:"resources"`
}

// ResourceConfiguration lists the providers of some resources.
type ResourceConfiguration struct {
	Resources []string                `json:"resources"` // secrets, deployments.apps, *.apps, *. (core), *.*
	Providers []ProviderConfiguration `json:"providers"` // the first one writes, all read
}

// ProviderConfiguration is one provider: exactly one field is set.
type ProviderConfiguration struct {
	AESGCM    *KeysConfiguration `json:"aesgcm,omitempty"`
	AESCBC    *KeysConfiguration `json:"aescbc,omitempty"`
	Secretbox *KeysConfiguration `json:"secretbox,omitempty"`
	Identity  *struct{}          `json:"identity,omitempty"`
	KMS       *KMSConfiguration  `json:"kms,omitempty"`
}

// KeysConfiguration lists the keys of a provider: the first one writes, all read.
type KeysConfiguration struct {
	Keys []Key `json:"keys"`
}

// Key is a named key.
type Key struct {
	Name   string `json:"name"`
	Secret string `json:"secret"` // base64
}

// String omits the secret, so that logs cannot contain it.
func (k Key) String() string { return fmt.Sprintf("Name: %s, Secret: [REDACTED]", k.Name) }

// GoString omits the secret for %#v.
func (k Key) GoString() string { return k.String() }

// KMSConfiguration configures a key management plugin.
type KMSConfiguration struct {
	APIVersion string           `json:"apiVersion"` // only v2 is supported
	Name       string           `json:"name"`
	CacheSize  *int32           `json:"cachesize,omitempty"` // only in v1, so it is rejected
	Endpoint   string           `json:"endpoint"`            // unix:///path
	Timeout    *metav1.Duration `json:"timeout,omitempty"`   // of a call to the plugin; default 3 s
}

const defaultTimeout = 3 * time.Second

func (c *KMSConfiguration) timeout() time.Duration {
	if c.Timeout == nil {
		return defaultTimeout
	}
	return c.Timeout.Duration
}

var configurationKind = schema.GroupVersionKind{Group: "apiserver.config.k8s.io", Version: "v1", Kind: "EncryptionConfiguration"}

// Parse parses and validates a configuration file. It returns all errors at once,
// with the paths of the fields and without secrets.
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
