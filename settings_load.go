package felix

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// SettingsInput is where the values of settings come from. A flag beats the environment, which beats the file,
// which beats the default.
type SettingsInput struct {
	Flags   map[string]string // by key
	Environ []string          // NAME=value, as os.Environ gives it
	File    string            // of flat YAML keys; empty means the one named by FELIX_BROKER_CONFIG, or none
}

// ConfigFileEnv names the configuration file where no flag does.
const ConfigFileEnv = "FELIX_BROKER_CONFIG"

// OriginDefault is the Origin of a Value that nothing sets.
const OriginDefault = "default"

// Value is a setting as it is in force, with where it came from.
type Value struct {
	Setting
	Text   string // as it was written; the default where nothing was
	Origin string // OriginDefault, "felix.yaml:3", "environment FELIX_AUTH", "flag --auth"
}

// Settled is the outcome of LoadSettings.
type Settled struct {
	Config   Config
	Values   []Value  // one for each setting, in the order of the table
	Warnings []string // names in the environment that nothing reads
}

// toolEnv are names that the command line tools and the clients read. They often stand in the same environment
// and are no mistake there.
var toolEnv = []string{
	"FELIX_ADMIN", "FELIX_AUTH_TENANT", "FELIX_AUTH_TOKEN", "FELIX_AUTH_TOKEN_FILE", "FELIX_BROKERS", "FELIX_CA_FILE",
	"FELIX_CLIENT_CERT_FILE", "FELIX_CLIENT_KEY_FILE", "FELIX_CLI_CONFIG", "FELIX_CONTEXT", "FELIX_INITIAL_MTU",
	"FELIX_KEEPALIVE_MS", "FELIX_MAX_IDLE_TIMEOUT_MS", "FELIX_MTU_UPPER_BOUND", "FELIX_NAMESPACE", "FELIX_OUTPUT",
	"FELIX_SERVER", "FELIX_SERVER_NAME", "FELIX_UDP_RECV_BUFFER", "FELIX_UDP_SEND_BUFFER",
}

// ackOnCommitEnv turns acks after the write off and on for other brokers of this protocol. Here they always are.
const ackOnCommitEnv = "FELIX_ACK_ON_COMMIT"

// LoadSettings puts a configuration together and checks it. The error names every problem: keys that do not exist, values out
// of bounds, and what Config.Validate finds. Settled is filled in as far as possible in either case.
func LoadSettings(in SettingsInput) (*Settled, error) {
	var problems []error
	environ := felixEnviron(in.Environ)
	file := in.File
	if file == "" {
		file = environ[ConfigFileEnv]
	}
	delete(environ, ConfigFileEnv)
	fromFile, err := readSettingsFile(file)
	if err != nil {
		problems = append(problems, err)
	}

	settled := &Settled{}
	for _, s := range Settings() {
		value := Value{Setting: s, Text: s.Default, Origin: OriginDefault}
		if given, ok := fromFile[s.Key]; ok {
			value.Text, value.Origin = given.text, given.origin
		}
		name, fromEnv := "", ""
		for _, candidate := range s.Env {
			if fromEnv == "" && environ[candidate] != "" {
				name, fromEnv = candidate, environ[candidate]
				delete(environ, candidate)
			}
		}
		if fromEnv != "" {
			value.Text, value.Origin = fromEnv, "environment "+name
		}
		if given, ok := in.Flags[s.Key]; ok {
			value.Text, value.Origin = given, "flag --"+s.Flag()
		}
		settled.Values = append(settled.Values, value)
		if value.Origin == OriginDefault && s.defaultIsText {
			continue
		}
		if err := s.set(&settled.Config, value.Text); err != nil {
			problems = append(problems, fmt.Errorf("%s is %q (%s); %w", s.Key, value.Text, value.Origin, err))
		}
	}
	settled.Warnings = unread(environ)
	problems = append(problems, settled.Config.Validate())
	return settled, errors.Join(problems...)
}

// felixEnviron picks the variables that are meant for felix. A blank one counts as not set.
func felixEnviron(environ []string) map[string]string {
	picked := map[string]string{}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "FELIX_") && strings.TrimSpace(value) != "" {
			picked[name] = strings.TrimSpace(value)
		}
	}
	return picked
}

// unread warns of the variables that are left over when every setting has taken its own.
func unread(environ map[string]string) []string {
	var known []string
	for _, s := range Settings() {
		known = append(known, s.Env...)
	}
	var warnings []string
	for name := range environ {
		switch {
		case slices.Contains(toolEnv, name):
		case slices.Contains(known, name):
			warnings = append(warnings, fmt.Sprintf("environment %s is not used: another name of the same setting is set too", name))
		case name == ackOnCommitEnv:
			if on, err := parseBool(environ[name]); err != nil || !on {
				warnings = append(warnings, fmt.Sprintf("environment %s=%s is not offered: an ack is always given after the write, as the stream's fsync_mode promises; choose periodic or none there for weaker acks", name, environ[name]))
			}
		default:
			warnings = append(warnings, fmt.Sprintf("environment %s is read by nothing%s", name, didYouMean(name, append(known, ConfigFileEnv))))
		}
	}
	slices.Sort(warnings)
	return warnings
}

// fileValue is one value of a configuration file and its place.
type fileValue struct{ text, origin string }

// readSettingsFile reads flat YAML: keys of the table with a scalar or a list of scalars each. The values that could
// be read are returned beside the problems of the others.
func readSettingsFile(file string) (map[string]fileValue, error) {
	if file == "" {
		return nil, nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("the configuration file %q cannot be read: %w; give the path of a file that this user can read", file, plain(err))
	}
	return parseSettingsFile(file, content)
}

// parseSettingsFile parses the content of file.
func parseSettingsFile(file string, content []byte) (map[string]fileValue, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		return nil, fmt.Errorf("%s is no YAML (%s); write one key: value on each line", file, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if len(document.Content) == 0 {
		return nil, nil // empty, or comments only
	}
	root := document.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d:%d: this is no list of settings; write one key: value on each line", file, root.Line, root.Column)
	}
	var keys []string
	for _, s := range Settings() {
		keys = append(keys, s.Key)
	}
	values := map[string]fileValue{}
	var problems []error
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, node := root.Content[i], root.Content[i+1]
		bad := func(n *yaml.Node, format string, args ...any) {
			problems = append(problems, fmt.Errorf("%s:%d:%d: "+format, append([]any{file, n.Line, n.Column}, args...)...))
		}
		if !slices.Contains(keys, key.Value) {
			bad(key, "there is no setting %q%s", key.Value, didYouMean(key.Value, keys))
			continue
		}
		if _, twice := values[key.Value]; twice {
			bad(key, "%s stands there twice; keep one", key.Value)
			continue
		}
		text, ok := scalars(node)
		if !ok {
			bad(node, "%s has no plain value; write %s: value", key.Value, key.Value)
			continue
		}
		values[key.Value] = fileValue{text, file + ":" + strconv.Itoa(node.Line)}
	}
	return values, errors.Join(problems...)
}

// scalars returns the text of a scalar, or of a list of them with commas in between.
func scalars(node *yaml.Node) (text string, ok bool) {
	switch {
	case node.Kind == yaml.ScalarNode && node.Tag != "!!null":
		return node.Value, true
	case node.Kind == yaml.SequenceNode && len(node.Content) > 0:
		var words []string
		for _, item := range node.Content {
			if item.Kind != yaml.ScalarNode || item.Tag == "!!null" {
				return "", false
			}
			words = append(words, item.Value)
		}
		return strings.Join(words, ","), true
	}
	return "", false
}

// NearestSetting returns the flag of the setting nearest to a misspelt one, "" when none is near.
func NearestSetting(flag string) string {
	var flags []string
	for _, s := range Settings() {
		flags = append(flags, s.Flag())
	}
	return nearest(flag, flags)
}

// didYouMean is the end of a sentence that names the candidate nearest to word, or nothing when none is near.
func didYouMean(word string, candidates []string) string {
	if best := nearest(word, candidates); best != "" {
		return "; did you mean " + best + "?"
	}
	return ""
}

// nearest returns the candidate nearest to word, "" when more than a third of it would have to change.
func nearest(word string, candidates []string) string {
	best, distance := "", len(word)/3+1
	for _, candidate := range candidates {
		if d := editDistance(word, candidate); d < distance {
			best, distance = candidate, d
		}
	}
	return best
}

// editDistance is the number of bytes to insert, delete or replace to make b from a.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
