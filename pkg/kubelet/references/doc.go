// Package references reads the ConfigMaps and Secrets that the volumes of the node's
// pods show, and tells of their changes. As upstream's
// configMapAndSecretChangeDetectionStrategy, it watches each of them, remembers it for
// a while, or reads it each time.
package references
