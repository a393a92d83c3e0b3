package felix

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The kinds of settings. Each constructor returns a row whose set function parses one text into one field of a
// Config; the error of set says what to give instead and reads on after "key is value; ".

// text is any string.
func text(key, standard, bounds, help string, field func(*Config) *string) Setting {
	return Setting{Key: key, Default: standard, Bounds: bounds, Help: help, set: func(c *Config, value string) error {
		*field(c) = value
		return nil
	}}
}

// number is a whole number from low to high.
func number[T int | int64](key, standard string, low, high int, help string, field func(*Config) *T) Setting {
	bounds := fmt.Sprintf("%d to %d", low, high)
	return Setting{Key: key, Default: standard, Bounds: bounds, Help: help, set: func(c *Config, value string) error {
		n, err := strconv.Atoi(value)
		if err != nil || n < low || n > high {
			return fmt.Errorf("give a number from %s", bounds)
		}
		*field(c) = T(n)
		return nil
	}}
}

// zeroIsOff makes 0 switch a limit off: the fields of Limits use -1 for that, since their 0 is the default.
func zeroIsOff[T int | time.Duration](s Setting, field func(*Config) *T) Setting {
	set := s.set
	s.Bounds += ", 0 = off"
	s.set = func(c *Config, value string) error {
		if err := set(c, value); err != nil {
			return fmt.Errorf("%w (0 = off)", err)
		}
		if *field(c) == 0 {
			*field(c) = -1
		}
		return nil
	}
	return s
}

// duration is a whole number of units from low to high.
func duration(key, standard string, unit time.Duration, low, high int64, help string, field func(*Config) *time.Duration) Setting {
	bounds := fmt.Sprintf("%d to %d", low, high)
	return Setting{Key: key, Default: standard, Bounds: bounds, Help: help, set: func(c *Config, value string) error {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < low || n > high {
			return fmt.Errorf("give a number from %s", bounds)
		}
		*field(c) = time.Duration(n) * unit
		return nil
	}}
}

// size is a number of bytes from low to high, plain or with KiB, MiB, GiB or TiB behind it.
func size[T int | int64](key, standard string, low, high int64, help string, field func(*Config) *T) Setting {
	bounds := formatSize(low) + " to " + formatSize(high)
	return Setting{Key: key, Default: standard, Bounds: bounds, Help: help, set: func(c *Config, value string) error {
		n, err := parseSize(value)
		if err != nil || n < low || n > high {
			return fmt.Errorf("give a number of bytes from %s, for example %s", bounds, formatSize(min(max(low, 64<<20), high)))
		}
		*field(c) = T(n)
		return nil
	}}
}

// list is a comma-separated list of numbers from low to high, each at most once.
func list[T int | uint16](key, standard string, low, high int, help string, field func(*Config) *[]T) Setting {
	bounds := fmt.Sprintf("%d to %d each", low, high)
	return Setting{Key: key, Default: standard, Bounds: bounds, Help: help, set: func(c *Config, value string) error {
		var numbers []T
		for word := range strings.SplitSeq(value, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(word))
			if err != nil || n < low || n > high {
				return fmt.Errorf("give numbers from %d to %d with commas between them", low, high)
			}
			if n != 0 && slices.Contains(numbers, T(n)) {
				return fmt.Errorf("%d stands there twice", n)
			}
			numbers = append(numbers, T(n))
		}
		*field(c) = numbers
		return nil
	}}
}

// boolean is true or false.
func boolean(key, standard, help string, field func(*Config) *bool) Setting {
	return Setting{Key: key, Default: standard, Bounds: "true, false", Help: help, Bool: true, set: func(c *Config, value string) error {
		on, err := parseBool(value)
		if err == nil {
			*field(c) = on
		}
		return err
	}}
}

// negated is for a field that is true where the setting says false.
func negated(s Setting, field func(*Config) *bool) Setting {
	set := s.set
	s.set = func(c *Config, value string) error {
		err := set(c, value)
		if err == nil {
			*field(c) = !*field(c)
		}
		return err
	}
	return s
}

// toggle is true or false, or not said.
func toggle(key, standard, help string, field func(*Config) *Toggle) Setting {
	return Setting{Key: key, Default: standard, Bounds: "true, false", Help: help, Bool: true, set: func(c *Config, value string) error {
		on, err := parseBool(value)
		if err != nil {
			return err
		}
		*field(c) = Off
		if on {
			*field(c) = On
		}
		return nil
	}}
}

// word is one of a few words.
type word[T any] struct {
	text  string
	value T
}

// quotas is a comma-separated list of tenant=bytes/records, per second.
func quotas(key, standard, help string, field func(*Config) *map[string]Quota) Setting {
	return Setting{Key: key, Default: standard, Bounds: "tenant=bytes/records, ...", Help: help, set: func(c *Config, value string) error {
		if value == "" {
			*field(c) = nil
			return nil
		}
		list := map[string]Quota{}
		for word := range strings.SplitSeq(value, ",") {
			tenant, quota, _ := strings.Cut(strings.TrimSpace(word), "=")
			bytes, msgs, ok := strings.Cut(quota, "/")
			n, err := parseSize(bytes)
			m, err2 := strconv.ParseInt(msgs, 10, 64)
			if !ok || tenant == "" || err != nil || err2 != nil {
				return fmt.Errorf("%q is no quota: give tenant=bytes/records for each tenant with commas between them, for example orders=10MiB/5000,audit=0/100, where 0 bounds nothing", word)
			}
			if _, twice := list[tenant]; twice {
				return fmt.Errorf("tenant %s stands there twice", tenant)
			}
			list[tenant] = Quota{BytesPerSec: n, MsgsPerSec: m}
		}
		*field(c) = list
		return nil
	}}
}

// choice is one of a few words.
func choice[T any](key, standard, help string, field func(*Config) *T, words ...word[T]) Setting {
	var texts []string
	for _, w := range words {
		texts = append(texts, w.text)
	}
	return Setting{Key: key, Default: standard, Bounds: strings.Join(texts, ", "), Help: help, set: func(c *Config, value string) error {
		for _, w := range words {
			if w.text == value {
				*field(c) = w.value
				return nil
			}
		}
		return errors.New("give " + strings.Join(texts, " or "))
	}}
}

// empty makes a word stand for the empty text, which environment variables cannot say.
func (s Setting) empty(word string) Setting {
	set := s.set
	s.set = func(c *Config, value string) error {
		if value == word {
			value = ""
		}
		return set(c, value)
	}
	return s
}

// env names the environment variables of a setting where they do not follow from its key.
func (s Setting) env(names ...string) Setting {
	s.Env = names
	return s
}

// described marks a default that is a description and not a value, and leaves the zero value in its place.
func (s Setting) described() Setting {
	s.defaultIsText = true
	return s
}

// parseBool takes the spellings of YAML and of environment files.
func parseBool(value string) (bool, error) {
	switch strings.ToLower(value) {
	case "true", "1", "yes", "on":
		return true, nil
	case "false", "0", "no", "off":
		return false, nil
	}
	return false, errors.New("give true or false")
}

// sizeUnits are the suffixes of a size, the largest first.
var sizeUnits = [...]struct {
	suffix string
	bytes  int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// parseSize reads a number of bytes.
func parseSize(value string) (int64, error) {
	unit := int64(1)
	for _, u := range sizeUnits {
		if digits, ok := strings.CutSuffix(value, u.suffix); ok {
			value, unit = strings.TrimSpace(digits), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 || n > (1<<62)/unit {
		return 0, errors.New("no number of bytes")
	}
	return n * unit, nil
}

// formatSize writes a number of bytes with the largest unit that divides it.
func formatSize(n int64) string {
	for _, u := range sizeUnits {
		if n >= u.bytes && n%u.bytes == 0 && u.bytes > 1 {
			return fmt.Sprintf("%d %s", n/u.bytes, u.suffix)
		}
	}
	return strconv.FormatInt(n, 10)
}
