package registry

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
	"podium/pkg/scheme"
)

// ConfigMaps and Secrets hold data by key, of limited total size.

const isImmutable = "field is immutable when `immutable` is set"

func configMaps(k *scheme.Kind, _ Config) *Kind {
	doc := corev1.ConfigMap{}.SwaggerDoc()
	return Of[*corev1.ConfigMap]{
		Validate: validateConfigMap,
		Columns:  columns(column("Data", doc["data"]), ageColumn()),
		Row: func(c *corev1.ConfigMap, now time.Time) []any {
			return []any{c.Name, int64(len(c.Data) + len(c.BinaryData)), age(c.CreationTimestamp, now)}
		},
		AllowUnconditionalUpdate: true,
	}.Kind(k)
}

func validateConfigMap(new, old *corev1.ConfigMap) field.ErrorList {
	var errs field.ErrorList
	if old != nil && set(old.Immutable) {
		errs = append(errs, validateStaysImmutable(new.Immutable)...)
		if !reflect.DeepEqual(new.Data, old.Data) {
			errs = append(errs, field.Forbidden(field.NewPath("data"), isImmutable))
		}
		if !reflect.DeepEqual(new.BinaryData, old.BinaryData) {
			errs = append(errs, field.Forbidden(field.NewPath("binaryData"), isImmutable))
		}
	}
	size := 0
	for _, key := range slices.Sorted(maps.Keys(new.Data)) {
		at := field.NewPath("data").Key(key)
		errs = append(errs, fieldcheck.Invalid(validation.IsConfigMapKey(key), at, key)...)
		if _, twice := new.BinaryData[key]; twice {
			errs = append(errs, field.Invalid(at, key, "duplicate of key present in binaryData"))
		}
		size += len(new.Data[key])
	}
	for _, key := range slices.Sorted(maps.Keys(new.BinaryData)) {
		errs = append(errs, fieldcheck.Invalid(validation.IsConfigMapKey(key), field.NewPath("binaryData").Key(key), key)...)
		size += len(new.BinaryData[key])
	}
	if size > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(field.NewPath(""), "", corev1.MaxSecretSize))
	}
	return errs
}

func set(b *bool) bool { return b != nil && *b }

func validateStaysImmutable(now *bool) field.ErrorList {
	if set(now) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("immutable"), isImmutable)}
}

func secrets(k *scheme.Kind, _ Config) *Kind {
	doc := corev1.Secret{}.SwaggerDoc()
	return Of[*corev1.Secret]{
		Default:  defaultSecret,
		Prepare:  prepareSecret,
		Validate: validateSecret,
		Columns:  columns(column("Type", doc["type"]), column("Data", doc["data"]), ageColumn()),
		Row: func(s *corev1.Secret, now time.Time) []any {
			return []any{s.Name, string(s.Type), int64(len(s.Data)), age(s.CreationTimestamp, now)}
		},
		Fields:                   func(s *corev1.Secret) fields.Set { return fields.Set{"type": string(s.Type)} },
		AllowUnconditionalUpdate: true,
	}.Kind(k)
}

// defaultSecret moves StringData to Data: StringData is write-only.
func defaultSecret(s *corev1.Secret) {
	if len(s.StringData) > 0 && s.Data == nil {
		s.Data = map[string][]byte{}
	}
	for key, text := range s.StringData {
		s.Data[key] = []byte(text)
	}
	s.StringData = nil
	orDefault(&s.Type, corev1.SecretTypeOpaque)
}

// prepareSecret keeps the type of a Secret whose update omits it.
func prepareSecret(_ context.Context, _ Backend, new, old *corev1.Secret) error {
	if old != nil && new.Type == "" {
		new.Type = old.Type
	}
	return nil
}

func validateSecret(new, old *corev1.Secret) field.ErrorList {
	var errs field.ErrorList
	data := field.NewPath("data")
	if old != nil {
		errs = append(errs, apivalidation.ValidateImmutableField(new.Type, old.Type, field.NewPath("type"))...)
		if set(old.Immutable) {
			errs = append(errs, validateStaysImmutable(new.Immutable)...)
			if !reflect.DeepEqual(new.Data, old.Data) {
				errs = append(errs, field.Forbidden(data, isImmutable))
			}
		}
	}
	size := 0
	for _, key := range slices.Sorted(maps.Keys(new.Data)) {
		errs = append(errs, fieldcheck.Invalid(validation.IsConfigMapKey(key), data.Key(key), key)...)
		size += len(new.Data[key])
	}
	if size > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(data, "", corev1.MaxSecretSize))
	}
	return append(errs, validateSecretType(new, data)...)
}

// validateSecretType checks that a Secret of a well-known type has the keys and
// annotations of that type.
func validateSecretType(s *corev1.Secret, data *field.Path) field.ErrorList {
	require := func(keys ...string) field.ErrorList {
		var errs field.ErrorList
		for _, key := range keys {
			if _, ok := s.Data[key]; !ok {
				errs = append(errs, field.Required(data.Key(key), ""))
			}
		}
		return errs
	}
	requireJSON := func(key string) field.ErrorList {
		if errs := require(key); len(errs) > 0 {
			return errs
		}
		if err := json.Unmarshal(s.Data[key], &map[string]any{}); err != nil {
			return field.ErrorList{field.Invalid(data.Key(key), "<secret contents redacted>", err.Error())}
		}
		return nil
	}
	switch s.Type {
	case corev1.SecretTypeServiceAccountToken:
		if s.Annotations[corev1.ServiceAccountNameKey] == "" {
			return field.ErrorList{field.Required(field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey), "")}
		}
	case corev1.SecretTypeDockercfg:
		return requireJSON(corev1.DockerConfigKey)
	case corev1.SecretTypeDockerConfigJson:
		return requireJSON(corev1.DockerConfigJsonKey)
	case corev1.SecretTypeBasicAuth:
		if errs := require(corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey); len(errs) == 2 {
			return errs
		}
	case corev1.SecretTypeSSHAuth:
		if len(s.Data[corev1.SSHAuthPrivateKey]) == 0 {
			return field.ErrorList{field.Required(data.Key(corev1.SSHAuthPrivateKey), "")}
		}
	case corev1.SecretTypeTLS:
		return require(corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	}
	return nil
}
