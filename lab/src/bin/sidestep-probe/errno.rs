//! Names of errors as in errno(3): what tests compare and people search for.

use std::io;

use rustix::io::Errno;

/// Name of an I/O error. All ways in which the kernel reports an expired `SO_SNDTIMEO` or
/// `SO_RCVTIMEO` are "ETIMEDOUT".
pub(crate) fn name(error: &io::Error) -> String {
    let Some(errno) = Errno::from_io_error(error) else {
        return error.kind().to_string();
    };
    let name = match errno {
        // A blocking connect (EINPROGRESS) or read (EAGAIN) that ran into its socket timeout.
        Errno::TIMEDOUT | Errno::INPROGRESS | Errno::AGAIN => "ETIMEDOUT",
        Errno::ACCESS => "EACCES",
        Errno::ADDRINUSE => "EADDRINUSE",
        Errno::ADDRNOTAVAIL => "EADDRNOTAVAIL",
        Errno::AFNOSUPPORT => "EAFNOSUPPORT",
        Errno::CONNABORTED => "ECONNABORTED",
        Errno::CONNREFUSED => "ECONNREFUSED",
        Errno::CONNRESET => "ECONNRESET",
        Errno::DESTADDRREQ => "EDESTADDRREQ",
        Errno::HOSTDOWN => "EHOSTDOWN",
        Errno::HOSTUNREACH => "EHOSTUNREACH",
        Errno::INVAL => "EINVAL",
        Errno::IO => "EIO",
        Errno::MFILE => "EMFILE",
        Errno::MSGSIZE => "EMSGSIZE",
        Errno::NETDOWN => "ENETDOWN",
        Errno::NETUNREACH => "ENETUNREACH",
        Errno::NOBUFS => "ENOBUFS",
        Errno::NOMEM => "ENOMEM",
        Errno::NOPROTOOPT => "ENOPROTOOPT",
        Errno::NOTCONN => "ENOTCONN",
        Errno::OPNOTSUPP => "EOPNOTSUPP",
        Errno::PERM => "EPERM",
        Errno::PIPE => "EPIPE",
        Errno::PROTONOSUPPORT => "EPROTONOSUPPORT",
        other => return format!("errno {}", other.raw_os_error()),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_names_that_people_search_for() {
        assert_eq!(name(&Errno::CONNREFUSED.into()), "ECONNREFUSED");
        assert_eq!(name(&Errno::AGAIN.into()), "ETIMEDOUT");
        assert_eq!(name(&io::Error::from_raw_os_error(524)), "errno 524");
    }
}
