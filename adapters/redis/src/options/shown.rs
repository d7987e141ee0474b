//! Options as people are shown them.

use std::fmt;

use super::{Address, RedisOptions, Servers};

/// Shows where the servers are as a URL without credentials and parameters, such as `rediss://localhost:6379/3`.
impl fmt::Display for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.access.tls.is_some() { "rediss" } else { "redis" };
        let list = |addresses: &[Address]| {
            let addresses: Vec<_> = addresses.iter().map(Address::to_string).collect();
            addresses.join(",")
        };
        match &self.servers {
            Servers::One(Address::Unix(path)) => write!(f, "{scheme}+unix://{}", path.display())?,
            Servers::One(address) => write!(f, "{scheme}://{address}")?,
            Servers::Sentinel { sentinels, service } => {
                write!(f, "{scheme}+sentinel://{}/{service}", list(sentinels))?;
            }
            Servers::Cluster(nodes) => write!(f, "{scheme}+cluster://{}", list(nodes))?,
            // Its database is its own business, too.
            Servers::Given(own) => return write!(f, "{own:?}"),
        }
        match (self.access.database, &self.servers) {
            (0, _) => Ok(()),
            (database, Servers::One(Address::Unix(_))) => write!(f, "?db={database}"),
            (database, _) => write!(f, "/{database}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_show_where_the_servers_are_and_no_credentials() {
        for (url, shown) in [
            ("redis://user:p%40ss@localhost/?prefix=a", "redis://localhost:6379"),
            ("valkeys://:pass@[::1]:7000/3", "rediss://[::1]:7000/3"),
            (
                "redis+unix:///run/redis.sock?db=2&username=user&password_env=HOME",
                "redis+unix:///run/redis.sock?db=2",
            ),
            (
                "redis+sentinel://user:pass@one,two:7000/service/1",
                "redis+sentinel://one:26379,two:7000/service/1",
            ),
            ("redis+cluster://:pass@one,two:7000", "redis+cluster://one:6379,two:7000"),
        ] {
            assert_eq!(RedisOptions::from_url(url).unwrap().to_string(), shown);
        }
    }
}
