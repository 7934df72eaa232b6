package main

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// mysqlFixed has the driver's parameters whose values can't be changed. A URL may contain them, and
// the settings of [sessionSettings], but only with the same values.
var mysqlFixed = map[string]string{
	"parseTime":         "true", // return times as time.Time, not as text
	"loc":               "UTC",
	"clientFoundRows":   "true", // RowsAffected counts the rows that an UPDATE finds, even if it doesn't change them
	"interpolateParams": "true", // a statement takes one round trip instead of three
	"multiStatements":   "false",
	"columnsWithAlias":  "false",
	"checkConnLiveness": "true",
	"charset":           "utf8mb4",
}

// mysqlFree lists the driver's parameters that a URL may set to any value.
var mysqlFree = []string{
	"allowCleartextPasswords", "allowFallbackToPlaintext", "allowNativePasswords", "compress", "connectionAttributes",
	"maxAllowedPacket", "readTimeout", "rejectReadOnly", "timeout", "tls", "writeTimeout",
}

// mysqlOwn lists parameters that this program handles instead of the driver.
var mysqlOwn = []string{"socket", "ca_file", "cert_file", "key_file"}

// mysqlSettings returns the driver's configuration for a URL, including the fixed parameters.
func mysqlSettings(text string) (*mysql.Config, error) {
	address, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("it isn't a URL") // err would repeat the URL with its password
	}
	parameters, own, err := mysqlParameters(address.RawQuery)
	if err != nil {
		return nil, err
	}
	driver, err := mysql.ParseDSN(mysqlAddress(address, own["socket"]) + "/?" + parameters.Encode())
	if err != nil {
		return nil, err
	}
	driver.User, driver.DBName = address.User.Username(), strings.TrimPrefix(address.Path, "/")
	driver.Passwd, _ = address.User.Password()
	driver.Timeout = cmp.Or(driver.Timeout, connectTimeout)
	files, err := settings.TLSConfig(own["ca_file"], own["cert_file"], own["key_file"])
	if files != nil {
		files.ServerName = address.Hostname()
		driver.TLS = files
	}
	return driver, err
}

func mysqlAddress(address *url.URL, socket string) string {
	switch {
	case socket != "":
		return "unix(" + socket + ")"
	case address.Host == "":
		return "tcp(127.0.0.1:3306)"
	case address.Port() == "":
		return "tcp(" + net.JoinHostPort(address.Hostname(), "3306") + ")"
	}
	return "tcp(" + address.Host + ")"
}

// mysqlParameters splits a URL's parameters into the driver's parameters and the parameters in
// mysqlOwn. It refuses unknown parameters, and fixed parameters with other values.
func mysqlParameters(query string) (url.Values, map[string]string, error) {
	given, err := url.ParseQuery(query)
	if err != nil {
		return nil, nil, fmt.Errorf("its parameters aren't percent-encoded as name=value&name=value")
	}
	parameters, own := url.Values{}, map[string]string{}
	allFixed := maps.Clone(mysqlFixed)
	for _, setting := range dialect.Settings(dialect.MySQL()) {
		allFixed[setting.Name] = setting.Value
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		value := given.Get(name)
		fixed, isFixed := allFixed[name]
		switch {
		case len(given[name]) > 1:
			return nil, nil, fmt.Errorf("the parameter %s is given twice", name)
		case isFixed && !sameSetting(value, fixed):
			return nil, nil, fmt.Errorf("the parameter %s must be %s: leave it out", name, fixed)
		case isFixed:
		case slices.Contains(mysqlFree, name):
			parameters.Set(name, value)
		case slices.Contains(mysqlOwn, name):
			own[name] = value
		default:
			return nil, nil, fmt.Errorf("the parameter %s is unknown: it must be one of %s", name,
				strings.Join(slices.Sorted(slices.Values(slices.Concat(mysqlFree, mysqlOwn))), ", "))
		}
	}
	return parameters, own, setFixed(parameters, own)
}

// setFixed adds the fixed parameters, and the defaults of tls and connectionAttributes.
func setFixed(parameters url.Values, own map[string]string) error {
	files := own["ca_file"]+own["cert_file"]+own["key_file"] != ""
	switch tls := parameters.Get("tls"); {
	case files && tls != "" && !sameSetting(tls, "true"):
		return fmt.Errorf("the parameter tls=%s contradicts ca_file, cert_file or key_file: leave it out", tls)
	case tls == "" && own["socket"] == "" && !files:
		parameters.Set("tls", "preferred")
	}
	for name, value := range mysqlFixed {
		parameters.Set(name, value)
	}
	attributes := parameters.Get("connectionAttributes")
	if !strings.Contains(attributes, "program_name:") {
		parameters.Set("connectionAttributes", strings.TrimPrefix(attributes+",program_name:rowrelay", ","))
	}
	return nil
}

// sameSetting reports whether a and b are spellings of the same value, such as 1, on and true.
func sameSetting(a, b string) bool {
	plain := func(text string) string {
		text = strings.ToLower(strings.Trim(strings.ReplaceAll(text, " ", "+"), `'"`)) // url parsing decoded an unescaped + as a space
		if spelled, ok := map[string]string{"1": "true", "on": "true", "0": "false", "off": "false"}[text]; ok {
			return spelled
		}
		return text
	}
	return plain(a) == plain(b)
}
