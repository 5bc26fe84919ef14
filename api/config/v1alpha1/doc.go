// Package v1alpha1 holds the files that people write for Podium, in the group
// config.podium.dev. Cluster says what `podium cluster create` makes: Decode
// reads one strictly, fills in the defaults and checks it, with every mistake
// named by its field's path at once.
package v1alpha1
